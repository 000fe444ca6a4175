"""Work of the Docker daemon: pulls, builds and pushes, with progress and error messages."""
