"""An environment for processes in which whatever a Pi does not need to recognise is missing."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
REFUSED = (
    "tensorflow",
    "keras",
    "yaml",
    "rich",
    "prometheus_client",
    "psutil",
    "safetensors",
    "jinja2",
    "starlette",
    "uvicorn",
    "netifaces",
    "fabric",
    "onnx",
    "ai_edge_litert",
)
"""docs/recognise.md installs NumPy, SciPy, pydantic and ONNX Runtime alone."""
GUARD = f"""
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED!r}:
            raise ImportError(f"{{name}}: not on this machine")
sys.meta_path.insert(0, Refused())
"""


def guarded(folder: Path) -> dict[str, str]:
    """The environment; its `sitecustomize.py` is written into `folder`, which this makes."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GUARD)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}"}
