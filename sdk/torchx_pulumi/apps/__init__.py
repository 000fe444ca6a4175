"""How a run stands, and what belongs to it: one answer for every surface. Pure: no file, clock, randomness or network.

`judge` turns what was read of a run, what was requested and the last observation into the present one. `ownership.owns`
is the only test of whether an object in a cluster belongs to a run.
"""
