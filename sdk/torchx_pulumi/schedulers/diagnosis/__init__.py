"""Why a job does not run, or did not succeed. The only writer of explanations; pure, and never raises."""
