"""From observed Kubernetes objects to the status of a job. Pure: no cluster, no clock, no engine."""
