"""What needs Docker's daemon: base images, builds and pushes, with progress and with errors that name the step."""
