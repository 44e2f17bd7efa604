"""Windows as every reader returns them.

How stretches are cut into them, and the checks that all must pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.alike import refuse_alike, refuse_missing
from core.data.signals import TWO_WAY, UNKNOWN, Signals
from core.ground.errors import DataError

NO_SUBJECT = -1
"""The subject of a window whose source names none."""
LARGEST_INTEGER = 2**31 - 1
"""Largest id, class or row number: they are stored as int32."""

Report = Callable[[str, int, int], None]
"""Callback of progress: the stage (`hashing` in bytes, `hashing files`, `reading`, `writing`), the
completed part and the total."""


def silent(stage: str, done: int, total: int) -> None:
    """A Report for callers without a display."""


@dataclass(frozen=True)
class Cutting:
    """The settings that a reader may use.

    window_steps, window_stride: steps of a window and between two; seed: of invented recordings;
    groups: whether `user` or `device` is the group of a window; split: whether the test gets whole
    `groups` or `random` windows; null_class: whether readings without an activity are a class;
    filters: `two-way` or `causal`, see core/data/filters.py; format: how the recordings are
    written, as JSON has a `RecordingFormat`; sampling_hz: of windows that are resampled;
    label_share: of a window's samples that have its label; bad_lines: the share of lines that may
    be damaged; nine_channels: whether described recordings become those of HAPT;
    test_set: of several sets, the one that is the test, None for one of them.
    """

    window_steps: int
    window_stride: int
    seed: int
    groups: str = "user"
    split: str = "groups"
    null_class: bool = True
    filters: str = TWO_WAY
    format: Mapping[str, Any] | None = None
    sampling_hz: float | None = None
    label_share: float = 1.0
    bad_lines: float | None = None
    nine_channels: bool = False
    test_set: str | None = None

    @classmethod
    def of(
        cls, window_steps: int, window_stride: int, seed: int, options: Mapping[str, Any]
    ) -> "Cutting":
        """Return the settings, of which `options` are others by name, as JSON has them.

        Raises DataError for a name that is none of them.
        """
        names = {field.name for field in fields(cls)} - {"window_steps", "window_stride", "seed"}
        for name in options.keys() - names:
            raise DataError(
                f"unknown setting {name!r:.60} of the data: expected {', '.join(sorted(names))};"
                " leave it out"
            )
        return cls(window_steps, window_stride, seed, **options)


@dataclass(frozen=True)
class Recordings:
    """Labelled windows, the training rows first.

    windows: float32 (N, steps, channels) in the source's own units; classes: int32 (N,), zero-based
    into `labels`; subjects: int32 (N,), `NO_SUBJECT` where unknown; the first `train_windows` rows
    are for training. `signals` is what the source says of its channels.
    """

    windows: NDArray[np.float32]
    classes: NDArray[np.int32]
    subjects: NDArray[np.int32]
    train_windows: int
    labels: tuple[str, ...]
    signals: Signals = UNKNOWN


def check(recordings: Recordings, where: str) -> Recordings:
    """Return the same recordings if their classes can be trained on.

    Raises DataError naming `where`: no class, or one without a name or without training windows.
    """
    train = recordings.train_windows
    if len(recordings.labels) < 2:
        raise DataError(f"{where}: {one_class(recordings.labels)}")
    refuse_missing(where, recordings.labels)
    refuse_alike(where, "labels", recordings.labels)
    in_training = np.bincount(recordings.classes[:train], minlength=len(recordings.labels))
    for index in np.flatnonzero(in_training == 0):
        raise DataError(
            f"{where}: class {index} ({recordings.labels[index]!r}) has no training window; record"
            " some, use a shorter window, or remove the class"
        )
    return recordings


def one_class(labels: Sequence[str]) -> str:
    """Return why data with one class, or none, cannot be trained on, and what to do."""
    if labels:
        actual = f"{labels[0]!r:.60} alone"
    else:
        actual = "none"
    return (
        f"expected at least 2 classes, got {actual}: a model of one class is always right; add"
        " recordings of others"
    )


def check_window(cutting: Cutting) -> None:
    """Raises DataError when a window or its stride is shorter than one step."""
    for name, value in (
        ("window_steps", cutting.window_steps),
        ("window_stride", cutting.window_stride),
    ):
        if value < 1:
            raise DataError(
                f"{name}: expected at least 1 step, got {value}; the published sets use 128 at"
                " stride 64"
            )


def cut(samples: NDArray[np.float32], cutting: Cutting) -> NDArray[np.float32]:
    """Return windows (count, window_steps, channels) of samples (steps, channels), as views.

    The count is 0 when there are too few samples.
    """
    if len(samples) < cutting.window_steps:
        return np.empty((0, cutting.window_steps, samples.shape[1]), dtype=samples.dtype)
    views = np.lib.stride_tricks.sliding_window_view(samples, cutting.window_steps, axis=0)[
        :: cutting.window_stride
    ]
    return views.transpose(0, 2, 1)
