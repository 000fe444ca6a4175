"""What a stack says of a job: its types, how they are built and how they are read back."""
