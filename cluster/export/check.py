"""An export beside TensorFlow: every test window, then the time of one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.export.formats.format import ExportRefused
from cluster.export.graph import CHUNK, Answers
from cluster.exported.description import Check, Timing
from cluster.exported.verified import LARGEST_DIFFERENCE, LARGEST_LOSS

WARM_UP, TIMED = 20, 200
"""Calls with one window."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Compared:
    """The sums of a comparison, window by window."""

    windows: int
    greatest: float
    same: int
    right_tensorflow: int
    right: int


def compare(
    tensorflow: Answers, exported: Answers, inputs: Any, classes: NDArray[np.int32] | None, progress: Progress
) -> Compared:
    """Both answers to every window, a chunk at a time. `classes` is None for a task without one class a window."""
    greatest, same, right_tensorflow, right = 0.0, 0, 0, 0
    for begin in range(0, len(inputs), CHUNK):
        chunk = np.ascontiguousarray(inputs[begin : begin + CHUNK])
        expected, found = (np.asarray(answers(chunk)) for answers in (tensorflow, exported))
        if found.shape != expected.shape or not np.isfinite(found).all():
            raise ExportRefused(f"expected logits {expected.shape}, the export answers {found.shape}, or no numbers")
        greatest = max(greatest, float(np.abs(found - expected).max(initial=0.0)))
        if classes is not None:
            labels = classes[begin : begin + CHUNK]
            chosen, expected_labels = found.argmax(1), expected.argmax(1)
            same += int((chosen == expected_labels).sum())
            right += int((chosen == labels).sum())
            right_tensorflow += int((expected_labels == labels).sum())
        progress("checking", min(begin + CHUNK, len(inputs)), len(inputs))
    return Compared(len(inputs), greatest, same, right_tensorflow, right)


def judged(compared: Compared, source: str, *, quantized: bool, labelled: bool) -> Check:
    """The `check` of an export. Raises ExportRefused for one that answers otherwise than TensorFlow."""

    def share(count: int) -> float | None:
        return count / compared.windows if labelled else None

    lost = (compared.right_tensorflow - compared.right) / compared.windows
    if quantized and lost > LARGEST_LOSS:
        raise ExportRefused(
            f"--quantize dynamic: expected at most {LARGEST_LOSS:.0%} fewer right labels than TensorFlow, got "
            f"{lost:.1%} fewer of {compared.windows:,} windows: leave --quantize out"
        )
    if not quantized and compared.greatest > LARGEST_DIFFERENCE:
        raise ExportRefused(
            f"expected logits within {LARGEST_DIFFERENCE:g} of TensorFlow's, got a difference of "
            f"{compared.greatest:.3g} in {compared.windows:,} windows: nothing was written; please report it"
        )
    return Check(
        compared.windows, source, compared.greatest, share(compared.same), share(compared.right_tensorflow),
        share(compared.right),
    )  # fmt: skip


def timed(answers: Answers, inputs: Any) -> Timing:
    """Median and 99th percentile of one window after another, on one thread."""
    windows = [np.ascontiguousarray(inputs[row : row + 1]) for row in range(min(TIMED, len(inputs)))]
    seconds = []
    for turn in range(WARM_UP + TIMED):
        window = windows[turn % len(windows)]
        begin = time.perf_counter()
        np.asarray(answers(window))
        seconds.append(time.perf_counter() - begin)
    median, slow = np.percentile(1e3 * np.array(seconds[WARM_UP:]), [50, 99])
    return Timing(float(median), float(slow), 1, TIMED)
