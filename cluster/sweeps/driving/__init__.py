"""What runs a sweep: its job, the executors that train its runs, a run on its node, the trials."""
