"""The demo: a real dist.ddp job from preview to destroy, on a cluster of its own or on the user's."""
