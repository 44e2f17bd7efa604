"""The contestant's side of `benchmarks.kernel`: answers requests, a JSON object a line, on standard input and output.

Imports nothing beyond the standard library, so that it serves in PyTorch's own environment as well.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[], float]
"""One training step that has ended when it returns, with the loss before the update."""


def serve(build: Callable[[dict[str, Any]], tuple[Step, dict[str, Any]]], multiply: Callable[[], None]) -> None:
    """Answer until standard input ends.

    `{"cell": ...}` builds that network and takes its first step: what `build` says about it, and the loss.
    `{"steps": n}` times n steps: their seconds, this process's processor seconds and the last one's loss.
    `{"products": n}` times n calls of `multiply`.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be read as an answer
    step: Step | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "cell" in request:
            step = None
            step, answer = build(request["cell"])
            answer["loss"] = step()
        elif "steps" in request and step is not None:
            answer = _timed(step, request["steps"])
        else:
            answer = _timed(multiply, request["products"])
        print(json.dumps(answer), file=answers, flush=True)


def _timed(call: Callable[[], object], times: int) -> dict[str, Any]:
    seconds, last, processor_before = [], None, time.process_time()
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
    """The variant whose fastest step of `tries` is fastest, all of them taking turns after one step to warm up.

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
