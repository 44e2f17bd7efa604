"""NumPy and TensorFlow, imported when they are first used.

A model, a codec or an optimizer is one module: its options and facts, which `fab` reads without
TensorFlow, and its implementation, which needs TensorFlow. It writes `from core.lazy import tf` and
uses it in functions only. So do the modules of graphs: TensorFlow finds its environment
(`core.engine.environment`) whatever is imported first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["np", "tf"]

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
else:

    class _Lazy:
        Tensor = Any  # an annotation is no reason to import TensorFlow

        def __init__(self, name: str, *first: str) -> None:
            self._name = name
            self._first = first

        def __getattr__(self, attribute: str) -> Any:
            for name in self._first:
                import_module(name)
            module = import_module(self._name)
            value = getattr(module, attribute)
            if not attribute.startswith("__"):
                self.__dict__[attribute] = value
            return value

    np = _Lazy("numpy")
    tf = _Lazy("tensorflow", "core.engine.environment")
