"""Benchmarks: `python -m benchmarks.NAME [--quick] [--json]`.

docs/performance.md has the results.
"""
