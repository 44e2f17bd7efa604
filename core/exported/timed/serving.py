"""A contestant's side: the same windows for all, timed one at a time.

It needs NumPy and no TensorFlow.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core import asking
from core.exported import Description

Floats = NDArray[np.float32]
COMPARED = 32
"""Windows whose logits are compared."""


def anonymous_megabytes() -> float:
    """What this process holds now: the kernel can drop a library's pages, but not these."""
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) / 1000 for line in stream if line.startswith("RssAnon:"))


def windows_like(description: Description, count: int) -> Floats:
    """Invented windows with the training's mean and deviation, the same in every process."""
    random = np.random.default_rng(0)
    wanted = description.standardization
    noise = random.standard_normal((count, *description.input.shape))
    if wanted.mean:
        noise = noise * np.array(wanted.std) + np.array(wanted.mean)
    return noise.astype(np.float32)


def serve(
    description: Description,
    opened: Callable[[], Callable[[Floats], Floats]],
    facts: Mapping[str, Any],
) -> None:
    """Answer until standard input ends.

    What `opened` returns takes windows (batch, ...) and gives logits. It may add to `facts`.

    `{"open": true}` opens the model and answers a window: memory, and the logits of the first
    windows. `{"windows": n}` times n windows, one at a time: their milliseconds.
    """
    before = anonymous_megabytes()
    answers: list[Callable[[Floats], Floats]] = []
    windows = windows_like(description, COMPARED)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "open" in request:
            began = time.perf_counter()
            answers.append(opened())
            first = answers[0](windows[:1])
            seconds = time.perf_counter() - began
            logits = np.concatenate(
                [first, *(answers[0](windows[row : row + 1]) for row in range(1, COMPARED))]
            )
            megabytes = {
                "process_mb": anonymous_megabytes(),
                "model_and_runtime_mb": anonymous_megabytes() - before,
            }
            return {
                **facts,
                **megabytes,
                "first_answer_seconds": seconds,
                "logits": logits.tolist(),
            }
        found = []
        for row in range(request["windows"]):
            window = windows[row % COMPARED][None]
            began = time.perf_counter()
            answers[0](window)
            found.append((time.perf_counter() - began) * 1000)
        return {"milliseconds": found}

    asking.serve(answer)
