"""An export as other programs take it: what its folder holds, and one face of the runtimes.

Without TensorFlow.
"""

from core.exported.description import Description, read_description, write_description
from core.exported.runtimes import Model, open_model

__all__ = ["Description", "Model", "open_model", "read_description", "write_description"]
