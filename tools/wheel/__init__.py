"""What is done to the wheel when it is built."""
