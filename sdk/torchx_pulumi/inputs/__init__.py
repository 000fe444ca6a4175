"""The ways in: AppDefs, files and mappings of them, and run options, each to the types that are planned with."""
