"""An export beside TensorFlow: every test window, then the time of one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.export.formats.format import ExportRefused
from cluster.export.graph import CHUNK, Answers
from core.exported.description import Check, Latency
from core.exported.verified import LARGEST_DIFFERENCE, LARGEST_LOSS

WARM_UP = 20
TIMED = 200
"""Calls with one window."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Agreement:
    """The sums of a comparison, window by window."""

    windows: int
    greatest: float
    same: int
    right_tensorflow: int
    right: int


def compare(
    tensorflow: Answers,
    exported: Answers,
    inputs: Any,
    classes: NDArray[np.int32] | None,
    progress: Progress,
) -> Agreement:
    """Compare both answers to every window, a chunk at a time.

    `classes` is None for a task without one class a window.
    """
    greatest = 0.0
    same = 0
    right_tensorflow = 0
    right = 0
    for begin in range(0, len(inputs), CHUNK):
        chunk = np.ascontiguousarray(inputs[begin : begin + CHUNK])
        expected, exported_logits = (
            np.asarray(answers(chunk)) for answers in (tensorflow, exported)
        )
        if not np.isfinite(expected).all():
            raise ExportRefused("TensorFlow answers no numbers: the model is not to be used")
        if exported_logits.shape != expected.shape or not np.isfinite(exported_logits).all():
            raise ExportRefused(
                f"expected logits {expected.shape}, the export answers"
                f" {exported_logits.shape}, or no numbers"
            )
        greatest = max(greatest, _difference(exported_logits, expected))
        if classes is not None:
            labels = classes[begin : begin + CHUNK]
            chosen = exported_logits.argmax(1)
            expected_labels = expected.argmax(1)
            same += int((chosen == expected_labels).sum())
            right += int((chosen == labels).sum())
            right_tensorflow += int((expected_labels == labels).sum())
        progress("checking", min(begin + CHUNK, len(inputs)), len(inputs))
    return Agreement(len(inputs), greatest, same, right_tensorflow, right)


def _difference(exported_logits: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the greatest difference of a logit.

    It is relative to the largest one of its window where that is above 1, as float32 is.
    """
    of_window = tuple(range(1, expected.ndim))
    apart = np.abs(exported_logits - expected).max(axis=of_window, initial=0.0)
    largest = np.abs(expected).max(axis=of_window, initial=1.0)
    return float((apart / largest).max(initial=0.0))


def judged(compared: Agreement, source: str, *, quantized: bool, labelled: bool) -> Check:
    """The `check` of an export.

    Raises ExportRefused for one that answers otherwise than TensorFlow.
    """

    def share(count: int) -> float | None:
        if labelled:
            return count / compared.windows
        return None

    lost = (compared.right_tensorflow - compared.right) / compared.windows
    if quantized and lost > LARGEST_LOSS:
        raise ExportRefused(
            f"--quantize dynamic: expected at most {LARGEST_LOSS:.0%} fewer right labels than"
            f" TensorFlow, got {lost:.1%} fewer of {compared.windows:,} windows: leave"
            " --quantize out"
        )
    if not quantized and compared.greatest > LARGEST_DIFFERENCE:
        raise ExportRefused(
            f"expected logits within {LARGEST_DIFFERENCE:g} of TensorFlow's, got a difference of"
            f" {compared.greatest:.3g} in {compared.windows:,} windows: nothing was written; please"
            " report it"
        )
    return Check(
        compared.windows,
        source,
        compared.greatest,
        share(compared.same),
        share(compared.right_tensorflow),
        share(compared.right),
    )


def timed(answers: Answers, inputs: Any) -> Latency:
    """Median and 99th percentile of one window after another, on one thread."""
    windows = [
        np.ascontiguousarray(inputs[row : row + 1]) for row in range(min(TIMED, len(inputs)))
    ]
    seconds = []
    for turn in range(WARM_UP + TIMED):
        window = windows[turn % len(windows)]
        begin = time.perf_counter()
        np.asarray(answers(window))
        seconds.append(time.perf_counter() - begin)
    median, slow = np.percentile(1e3 * np.array(seconds[WARM_UP:]), [50, 99])
    return Latency(float(median), float(slow), 1, TIMED)
