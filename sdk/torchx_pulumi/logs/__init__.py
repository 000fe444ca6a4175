"""Logs of a pod's containers, for all schedulers and the command line."""
