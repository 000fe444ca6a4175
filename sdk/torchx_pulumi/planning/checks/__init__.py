"""Rules for a job, its options and its values; all problems at once."""
