"""Runs: the local index of apps, their observations, leases and identities."""
