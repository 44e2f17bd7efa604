"""An export in ONNX Runtime or LiteRT, as a process.

`python -m core.exported.timed.in_runtime EXPORT THREADS`
"""

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from core.exported import open_model, read
from core.exported.timed.serving import Floats, serve

PACKAGES = {"onnx": "onnxruntime", "litert": "ai-edge-litert"}


def main(folder: Path, threads: int) -> None:
    """Answer until standard input ends."""
    description = read(folder)
    package = PACKAGES.get(description.format, "")
    facts = {"runtime": f"{package} {version(package)}" if package else description.format}

    def opened() -> Callable[[Floats], Floats]:
        return open_model(folder, threads).logits

    serve(description, opened, facts)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
