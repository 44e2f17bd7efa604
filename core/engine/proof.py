"""The proof that a process computes as this one does: a tiny step by the library."""

from functools import cache
from typing import Any

from core.engine.lost import first_line
from core.engine.runtime import fetched, here
from core.lazy import tf
from kernels.library import operations

REMEDY = (
    "install the same release there (`fab deploy start`), or take TensorFlow's arithmetic for all"
    " workers, `--set jobs.train.arithmetic=tensorflow`; in an app, keras.layers in the place of"
    " pscluster.keras"
)


def unproved(place: str) -> str | None:
    """Return why the process of the device `place` cannot compute as this one; None if it can.

    The step has dropout, an LSTM and an update; its answer is the version and a digest of all bits.
    """
    try:
        found = _step(place)
    except tf.errors.OpError as problem:
        return f"it cannot load the library of kernels ({first_line(problem)}): {REMEDY}"
    if found != _own():
        return (
            "its library of kernels computes other bits: version and digest are"
            f" {_shown(found)} there and {_shown(_own())} here: {REMEDY}"
        )
    return None


@cache
def _own() -> tuple[int, ...]:
    return _step(here())


def _step(place: str) -> tuple[int, ...]:
    with tf.device(place):
        made: Any = operations().pscluster_proof()
    return tuple(int(word) for word in fetched(made))


def _shown(words: tuple[int, ...]) -> str:
    return " ".join(f"{word & 0xFFFFFFFF:x}" for word in words)
