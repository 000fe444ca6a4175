"""What this machine knows of the apps that were launched: an index entry and the last observation of each."""
