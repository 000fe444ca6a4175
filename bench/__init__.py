"""Performance programs: ratios against the alternative, side by side in one run. Not in the wheel."""
