"""What a job, a plan, a run, an app and a status are: data only."""
