"""`python -m benchmarks.kernel`, with a module for each contestant."""
