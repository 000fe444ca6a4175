"""The registry's own API: which digest a name has, and whether an image is there. No daemon is needed for it."""
