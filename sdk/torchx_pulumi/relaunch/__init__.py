"""Is this the same run: identity, the record of a run, and what a change comes to. Pure."""
