"""Anyone's model and data: a Python file or folder that names its parts, and the networks made of them.

The room's doors are `load`, which imports an app, and `network_of`, which makes a network of its model for the engine.
Only the coordinator imports an app; workers get graphs.
"""

from cluster.apps.app import App, load
from cluster.apps.networks import network_of

__all__ = ["App", "load", "network_of"]
