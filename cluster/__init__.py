"""The coordinator's side of pscluster: inventory, parameters, data, models, engine, jobs."""

__version__ = "0.1.0"
"""The last release, or the next: what nodes, metrics and results say. A wheel's own version comes from the git tag."""
