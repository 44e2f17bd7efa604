"""The contestant's side of `benchmarks.kernel`: builds a network, and times its steps.

It needs nothing beyond the standard library, so that it also runs in PyTorch's own environment.
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks import asking

Step = Callable[[], float]
"""One training step; it returns, at its end, the loss before the update."""


def serve(
    build: Callable[[dict[str, Any]], tuple[Step, dict[str, Any]]], multiply: Callable[[], None]
) -> None:
    """Answer until standard input ends.

    `{"cell": ...}` builds that network and takes its first step: the facts that `build` returns,
    and the loss. `{"steps": n}` times n steps: their seconds, this process's processor seconds and
    the last loss. `{"products": n}` times n calls of `multiply`.
    """
    steps: list[Step] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "cell" in request:
            steps.clear()  # frees the previous network first
            step, facts = build(request["cell"])
            steps.append(step)
            return {**facts, "loss": step()}
        if "steps" in request:
            return _timed(steps[0], request["steps"])
        return _timed(multiply, request["products"])

    asking.serve(answer)


def _timed(call: Callable[[], object], times: int) -> dict[str, Any]:
    seconds = []
    last = None
    processor_before = time.process_time()
    for _ in range(times):
        begin = time.perf_counter()
        last = call()
        seconds.append(time.perf_counter() - begin)
    return {
        "seconds": seconds,
        "processor_seconds": time.process_time() - processor_before,
        "last": last if isinstance(last, float) else None,
    }


def fastest(variants: dict[str, Step], tries: int = 3, enough_seconds: float = 1.0) -> str:
    """Return the variant whose fastest step of `tries` is fastest.

    All variants take turns after one step to warm up.

    A variant whose steps came to `enough_seconds` is not tried again.
    """
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for step in variants.values():
        step()
    for _ in range(tries):
        for name, step in variants.items():
            if sum(taken[name]) < enough_seconds:
                begin = time.perf_counter()
                step()
                taken[name].append(time.perf_counter() - begin)
    return min(taken, key=lambda name: min(taken[name]))
