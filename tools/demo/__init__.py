"""The demo: a real PyTorch job from preview to destroy, on a cluster of its own or on the user's."""
