"""Watched objects of clusters, kept in memory."""
