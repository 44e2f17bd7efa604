"""Measurements: each runs us and the other in turn and prints one JSON object. `python -m benchmarks.NAME`."""
