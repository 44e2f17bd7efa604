"""Which kernels a network is traced with: TensorFlow's fused operations, or what XLA compiles.

What traces a function for XLA announces it here; a layer knows no device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMPILED: ContextVar[bool] = ContextVar("compiled", default=False)


@contextmanager
def compiled_by_xla(wanted: bool = True) -> Iterator[None]:
    """What is traced inside is for XLA, if `wanted`."""
    before = _COMPILED.set(wanted)
    try:
        yield
    finally:
        _COMPILED.reset(before)


def for_xla() -> bool:
    """Whether what is traced now is for XLA."""
    return _COMPILED.get()
