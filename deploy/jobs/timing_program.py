"""The folder that `fab job inference` sends to the workers' nodes: program and exports."""

import shutil
from pathlib import Path

from deploy.common.project import ROOT

PROGRAM = "inference.py"
REQUIREMENTS = "requirements.txt"
_TEXT = '''"""Written by `fab job inference`."""

from pathlib import Path
from sys import argv

from core.exported.timed.on_node import main

main(Path(__file__).parent, *map(int, argv[1:4]))
'''
_OURS = ("cluster", "core", "kernels", "ps_node", "worker_node")
"""What a trained network is opened with: a program of a person finds none of it."""
_PACKAGES = ("onnxruntime>=1.23,<2", "ai-edge-litert>=2.1,<3")
"""The runtimes, as the group `export` of pyproject.toml has them (a test compares them)."""


def written(folder: Path, run: Path) -> Path:
    """Write the program into `folder`, which has `exports` already, with the model of `run`.

    The program's path.
    """
    shutil.copytree(run / "model", folder / "run" / "model")
    for name in _OURS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / REQUIREMENTS).write_text("\n".join(_PACKAGES) + "\n", encoding="utf-8")
    program = folder / PROGRAM
    program.write_text(_TEXT, encoding="utf-8")
    return program
