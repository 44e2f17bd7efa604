"""NumPy, TensorFlow and Keras, imported when they are first used.

A model, a codec or an optimizer is one module: its options and facts, which `fab` reads without
TensorFlow, and its implementation, which needs TensorFlow. It writes `from core.ground.lazy import
tf` and uses it in functions only. So do the modules of graphs and the tests: TensorFlow finds its
environment and its options (`core.engine.graph_options`) whatever is imported first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Lazy", "keras", "np", "tf"]


class Lazy:
    """A module that is imported when one of its names is first used."""

    Tensor = Any  # an annotation is no reason to import TensorFlow

    def __init__(self, *names: str) -> None:
        """The last of these modules; the others are imported before it."""
        self._names = names

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # `inspect` and pytest ask any object for such names
            raise AttributeError(attribute)
        *_, module = map(import_module, self._names)
        vars(self).update(vars(module))
        return getattr(module, attribute)


if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf
else:
    np = Lazy("numpy")
    tf = Lazy("core.engine.graph_options", "tensorflow")
    keras = Lazy("core.engine.graph_options", "keras")
