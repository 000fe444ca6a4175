"""Plan -> manifests. One module per scheduler, and what their pods share; pure, no input or output."""
