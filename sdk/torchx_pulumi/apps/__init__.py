"""What every surface asks about an app: pure functions, with no file, clock or network.

`ownership.owns` is the only test of whether an object in a cluster belongs to a run.
"""
