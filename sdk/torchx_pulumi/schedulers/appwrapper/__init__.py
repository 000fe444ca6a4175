"""Everything about AppWrappers: MCAD v1beta1 and AppWrapper operator v1beta2."""
