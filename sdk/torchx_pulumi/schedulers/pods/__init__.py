"""Code that the schedulers share: pod templates, pod status, gangs."""
