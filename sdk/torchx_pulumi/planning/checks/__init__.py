"""What a job, its options and its values may be; every problem at once."""
