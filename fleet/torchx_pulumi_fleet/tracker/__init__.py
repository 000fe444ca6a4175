"""What is known about the apps of backends: read from their stacks, and observed in their clusters."""
