"""The model of an export: opened in a process of its own, warmed up, compared with others."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.exported.description import Description, labels_of, read_description
from core.ground.errors import UsageError
from recognise.service.limits import Limits
from recognise.service.worker.process import ModelLostError, ModelProcess, Nursery

Floats = NDArray[np.float32]


class Computer:
    """An open model, and the threads that wait for its process; its owner must `close` it."""

    def __init__(self, folder: Path, limits: Limits, nursery: Nursery) -> None:
        """Open and warm up the model. Raises UsageError and ClusterError."""
        self._folder = folder
        self._nursery = nursery
        self._limits = limits
        self.description: Description = described(folder)
        self._process = _opened(folder, self.description, limits, nursery)
        self.pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="inference")

    @property
    def lost(self) -> str:
        """The reason why its process has ended, or an empty text while it runs."""
        return self._process.lost

    def logits(self, windows: Floats) -> Floats:
        """Return the logits, float32 (windows, classes). Raises as `ModelProcess.logits` does."""
        return self._process.logits(windows)

    def reopen(self) -> None:
        """Start another process in the place of one that ended.

        Raises UsageError and ClusterError.
        """
        self._process = _opened(self._folder, self.description, self._limits, self._nursery)

    def close(self) -> None:
        """Kill the process; the threads end with what they waited for."""
        self._process.close()
        self.pool.shutdown(wait=False, cancel_futures=True)


def tried(folder: Path, limits: Limits) -> Description:
    """Return the description of an export of windows whose model opens and computes.

    It did so in a process with the limits of a service. Raises UsageError and ClusterError.
    """
    description = described(folder)
    with closing(Nursery()) as nursery, closing(_opened(folder, description, limits, nursery)):
        return description


def described(folder: Path) -> Description:
    """Return the description of an export that a service can take. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder that `fab export` wrote")
    description = read_description(folder, check_model=False)
    model_input = description.input
    if len(model_input.shape) != 2 or model_input.dtype != "float32":
        raise UsageError(
            f"{folder}: expected a model of windows (samples, channels) in float32, got"
            f" {model_input.shape} in {model_input.dtype}: the service takes no other; ask an"
            " export --to onnx with onnxruntime"
        )
    if 4 * math.prod(model_input.shape) > Limits.body_bytes:
        raise UsageError(
            f"{folder}: expected windows of at most {Limits.body_bytes} bytes, the largest body of"
            f" a request, got {model_input.shape} in float32: train on shorter windows"
        )
    return description


def _opened(
    folder: Path, description: Description, limits: Limits, nursery: Nursery
) -> ModelProcess:
    process = ModelProcess(folder, description, limits, nursery)
    try:
        _warm(process, folder, description, limits)
    except BaseException:
        process.close()
        raise
    return process


def _warm(process: ModelProcess, folder: Path, description: Description, limits: Limits) -> None:
    """Compute windows as clients send them, one and many. Raises UsageError."""
    shape = description.input.shape
    noise = np.random.default_rng(0).normal(size=(limits.batch_windows, *shape))
    moments = description.standardization
    if len(moments.mean) == shape[1]:
        noise = noise * np.array(moments.std) + np.array(moments.mean)
    zeros = np.zeros((limits.batch_windows, *shape), np.float32)
    for what, windows in (("zeros", zeros), ("noise", noise.astype(np.float32))):
        for count in (1, limits.batch_windows):
            try:
                answer = process.logits(windows[:count])
            except ModelLostError as problem:
                raise UsageError(
                    f"{folder}: {count} windows of {what} end the model's process ({problem.why};"
                    f" it has {limits.compute_seconds:g} s and {limits.model_bytes >> 20} MiB):"
                    " serve a smaller model, or give it more with --memory-megabytes"
                ) from None
            except UsageError as problem:
                raise UsageError(
                    f"{folder}: {count} windows of {what} within {limits.model_bytes >> 20} MiB:"
                    f" {problem}"
                ) from None
            if not np.isfinite(answer).all():
                raise UsageError(
                    f"{folder}: windows of {what} get no finite logits of each class: export the"
                    " run again"
                )


def compatible(now: Description, following: Description, export: Path) -> None:
    """Refuse a version that would break the clients of the one before it. Raises UsageError."""
    for what, served, promoted in (
        ("windows", now.input.shape, following.input.shape),
        ("channels", now.input.channels, following.input.channels),
        ("units", now.input.units, following.input.units),
        ("sensors", now.input.sensors, following.input.sensors),
        ("sampling rate", now.sampling_hz, following.sampling_hz),
        ("labels", labels_of(now), labels_of(following)),
    ):
        if served != promoted:
            raise UsageError(
                f"{export}: expected the {what} of the served version, {_short(served)}, got"
                f" {_short(promoted)}: serve it under another --name"
            )


def _short(value: object) -> str:
    return f"{value!s:.120}"
