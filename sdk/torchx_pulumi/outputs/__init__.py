"""The outputs of a stack about a job: their types, and how they are built and read back."""
