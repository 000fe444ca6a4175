"""Everything about Volcano: options, checks, manifests, status, diagnosis."""
