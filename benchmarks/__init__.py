"""Measurements: each runs us and the other in turn, in one run, and prints one JSON object. `python -m benchmarks.NAME`."""
