"""`python -m benchmarks.wire`, with the network of its contestants and a module for each of them."""
