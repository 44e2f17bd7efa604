"""`python -m benchmarks.links`, with a module for each contestant."""
