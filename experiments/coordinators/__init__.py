"""What the experiments run in the coordinator's place."""
