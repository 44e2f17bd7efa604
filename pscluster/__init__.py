"""pscluster from Python."""
