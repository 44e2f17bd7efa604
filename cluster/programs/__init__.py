"""A person's own program on the cluster: its job, environment, processes, output and end."""
