"""From a JobSpec to a JobPlan: names, macros, quantities, checks. Pure."""
