"""A person's own program on the cluster: what it finds in its environment, its processes, its output, its end."""
