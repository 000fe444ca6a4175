"""What installs the parts and runs a cluster from them: for developers, demos and tests. Not in the wheel."""
