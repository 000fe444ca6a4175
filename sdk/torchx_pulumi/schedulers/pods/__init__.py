"""What the schedulers share: pod templates, pod status, gangs."""
