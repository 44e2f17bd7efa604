"""`python -m benchmarks.wire`: the network of its contestants, and a module for each of them."""
