"""An export in the runtime of its format, as a process that is asked.

`python -m benchmarks.inference.in_runtime EXPORT`

`{"open": true}` opens the model and answers a window: memory, and the logits of the first windows.
`{"windows": n}` times n windows, one at a time: their milliseconds.
"""

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import asking
from benchmarks.report import memory_bytes
from core.exported import Description, Model, open_model, read_description

PACKAGES = {"onnx": "onnxruntime", "litert": "ai-edge-litert"}
COMPARED = 32
"""Windows whose logits are compared."""


def windows_like(description: Description, count: int) -> NDArray[np.float32]:
    """Invented windows with the training's mean and deviation, the same in every process."""
    random = np.random.default_rng(0)
    wanted = description.standardization
    noise = random.standard_normal((count, *description.input.shape))
    if wanted.mean:
        noise = noise * np.array(wanted.std) + np.array(wanted.mean)
    return noise.astype(np.float32)


def main(folder: Path) -> None:
    """Answer until standard input ends."""
    before = memory_bytes()
    description = read_description(folder)
    package = PACKAGES[description.format]
    windows = windows_like(description, COMPARED)
    models: list[Model] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "open" in request:
            began = time.perf_counter()
            models.append(open_model(folder, threads=1))
            models[0].logits(windows[:1])
            seconds = time.perf_counter() - began
            megabytes = (memory_bytes() - before) / 1e6
            each = [models[0].logits(window[None])[0] for window in windows]
            return {
                "runtime": f"{package} {version(package)}",
                "model_and_runtime_mb": megabytes,
                "first_answer_seconds": seconds,
                "logits": np.array(each).tolist(),
            }
        times = []
        for row in range(request["windows"]):
            window = windows[row % COMPARED][None]
            began = time.perf_counter()
            models[0].logits(window)
            times.append((time.perf_counter() - began) * 1000)
        return {"milliseconds": times}

    asking.serve(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
