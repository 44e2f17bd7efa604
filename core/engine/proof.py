"""The proof that a process computes as this one does: a tiny step by the library."""

from functools import cache
from typing import Any

from core.engine.lost import first_line
from core.engine.runtime import fetched, here, transient
from core.ground.lazy import tf
from kernels.library import operations

REMEDY = (
    "install the same release there (`fab deploy start`), or take TensorFlow's arithmetic for all"
    " workers, `--set jobs.train.arithmetic=tensorflow`; in an app, keras.layers in the place of"
    " pscluster.keras"
)


def unproved(place: str) -> str | None:
    """Return why the process of the device `place` cannot compute as this one; None if it can.

    The step has dropout, an LSTM and an update; its answer is the version and a digest of all bits.

    Raises tf.errors.OpError if the process did not come to its answer, such as one that is killed.
    """
    try:
        answer = _step(place)
    except tf.errors.OpError as problem:
        if not _is_verdict(problem):
            raise
        return f"it cannot load the library of kernels ({first_line(problem)}): {REMEDY}"
    if answer != _own():
        return (
            "its library of kernels computes other bits: version and digest are"
            f" {_shown(answer)} there and {_shown(_own())} here: {REMEDY}"
        )
    return None


def _is_verdict(problem: "tf.errors.OpError") -> bool:
    """Return whether the process lives and says that it lacks the operation.

    All else may be well at the next attempt: TensorFlow has many words for a process that died.
    """
    lacks = tf.errors.NotFoundError | tf.errors.UnimplementedError
    return isinstance(problem, lacks) and not transient(problem)


@cache
def _own() -> tuple[int, ...]:
    return _step(here())


def _step(place: str) -> tuple[int, ...]:
    with tf.device(place):
        answer: Any = operations().pscluster_proof()
    return tuple(int(word) for word in fetched(answer))


def _shown(digest: tuple[int, ...]) -> str:
    return " ".join(f"{word & 0xFFFFFFFF:x}" for word in digest)
