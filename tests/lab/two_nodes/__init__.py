"""Jobs of every kind on one running cluster of two nodes, which the modules here share."""
