"""Which kernels a network is traced with: TensorFlow's fused operations, or what XLA compiles.

The code that traces a function for XLA announces it here; a layer does not know its device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Lstm = Callable[[Any, Any, Any], Any]
"""Outputs of every step from inputs, kernel and bias, as `core.models.lstm` has them."""

_COMPILED: ContextVar[bool] = ContextVar("compiled", default=False)


@contextmanager
def compiled_by_xla(enabled: bool = True) -> Iterator[None]:
    """Trace what is inside for XLA, if `enabled`."""
    before = _COMPILED.set(enabled)
    try:
        yield
    finally:
        _COMPILED.reset(before)


def for_xla() -> bool:
    """Whether what is traced now is for XLA."""
    return _COMPILED.get()


_PORTABLE: ContextVar[bool] = ContextVar("portable", default=False)


@contextmanager
def portable_operations() -> Iterator[None]:
    """Trace what is inside with TensorFlow's own operations, for programs without ours."""
    before = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(before)


def portable() -> bool:
    """Whether what is traced now has TensorFlow's own operations alone."""
    return _PORTABLE.get()
