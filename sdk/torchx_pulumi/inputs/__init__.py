"""Readers of AppDefs, of files and mappings of them, and of run options, into the types of the model."""
