"""A third scheduler: batch/v1 Indexed Jobs, without a queue and without gangs. See docs/adding-a-scheduler.md."""
