"""An export as other programs take it: what its folder holds, and one face of the runtimes. Without TensorFlow."""

from cluster.exported.description import Description, read, write
from cluster.exported.runtimes import Model, open_model

__all__ = ["Description", "Model", "open_model", "read", "write"]
