"""Benchmarks: `python -m benchmarks.NAME [--quick] [--json]`.

experiments/pages/performance.md has the results.
"""
