"""An export as the service uses it: opened once a thread, warmed up, compared with the version before it."""

import math
import queue
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError
from cluster.exported.description import Description, labels_of
from cluster.exported.runtimes import Model, open_model
from recognise.service.limits import Limits
from recognise.service.tensors import Shape

_WARM_WINDOWS = (1, 8)


class Computer:
    """One model for each thread of the pool, because a model computes one call at a time."""

    def __init__(self, folder: Path, threads: int, most: int) -> None:
        """Opens and warms up. A model computes at most that many windows at once. Raises UsageError."""
        self._most = most
        models = [open_for_service(folder) for _ in range(threads)]
        self.description: Description = models[0].description
        self._idle: queue.SimpleQueue[Model] = queue.SimpleQueue()
        for model in models:
            self._idle.put(model)

    def logits(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Float32 (windows, classes). Waits for an idle model."""
        model = self._idle.get()
        try:
            parts = [model.logits(windows[at : at + self._most]) for at in range(0, len(windows), self._most)]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        finally:
            self._idle.put(model)


def open_for_service(folder: Path) -> Model:
    """The model of an export of windows, opened and warmed up. Raises UsageError in one line."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder that `fab export` wrote")
    model = open_model(folder)
    described = model.description.input
    if len(described.shape) != 2 or described.dtype != "float32":
        raise UsageError(
            f"{folder}: expected a model of windows (samples, channels) in float32, got {described.shape} in "
            f"{described.dtype}: the service takes no other"
        )
    if 4 * math.prod(described.shape) > Limits.body_bytes:
        raise UsageError(
            f"{folder}: expected windows of at most {Limits.body_bytes} bytes, the largest body of a request, got "
            f"{described.shape} in float32: train on shorter windows"
        )
    for count in _WARM_WINDOWS:
        answer = model.logits(np.zeros((count, *described.shape), np.float32))
        if answer.shape != (count, model.description.output.classes) or not np.isfinite(answer).all():
            raise UsageError(f"{folder}: windows of zeros get no finite logits of each class: export the run again")
    return model


def shape_of(description: Description) -> Shape:
    """What the model takes."""
    samples, channels = description.input.shape
    return Shape(samples, channels)


def compatible(now: Description, following: Description, export: Path) -> None:
    """Refuse a version that would break the clients of the one before it. Raises UsageError."""
    for what, one, other in (
        ("windows", now.input.shape, following.input.shape),
        ("channels", now.input.channels, following.input.channels),
        ("labels", labels_of(now), labels_of(following)),
    ):
        if one != other:
            raise UsageError(
                f"{export}: expected the {what} of the served version, {_short(one)}, got {_short(other)}: serve it "
                "under another --name"
            )


def _short(value: object) -> str:
    return f"{value!s:.120}"
