"""The coordinator's side of pscluster: inventory, parameters, data, models, engine, jobs."""

__version__ = "0.1.0"
