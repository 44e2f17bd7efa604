"""What every other package stands on.

Inventory, data, models, parameters, engine, servers, metrics, logs.
"""

__version__ = "0.1.0"
"""The last release, or the next: what nodes, metrics and results say. A wheel's own version comes
from the git tag."""
