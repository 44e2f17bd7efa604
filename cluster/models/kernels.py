"""Which kernels a network is traced with: TensorFlow's fused operations, what XLA compiles, or those of an export.

What traces a function for XLA or for another runtime announces it here; a layer knows neither device nor runtime.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Lstm = Callable[[Any, Any, Any], Any]
"""Outputs of every step from inputs, kernel and bias, as `cluster.models.lstm` has them."""

_COMPILED: ContextVar[bool] = ContextVar("compiled", default=False)
_LSTM: ContextVar[Lstm | None] = ContextVar("lstm", default=None)


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


@contextmanager
def computed_by(lstm: Lstm) -> Iterator[None]:
    """What is traced inside has this LSTM in the place of ours."""
    before = _LSTM.set(lstm)
    try:
        yield
    finally:
        _LSTM.reset(before)


def other_lstm() -> Lstm | None:
    """The LSTM that what is traced now asks for."""
    return _LSTM.get()
