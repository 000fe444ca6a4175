"""The types of jobs, plans, runs, apps and statuses. Data only."""
