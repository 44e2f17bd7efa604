"""The folder that `fab job inference` sends to the workers' nodes: program and exports."""

import shutil
from pathlib import Path

from cluster.apps.copy import FOLDER, RECORD, own_app
from cluster.apps.files import look
from cluster.apps.ownership import as_variable
from core.logs.terminal import say
from deploy.common.project import ROOT

PROGRAM = "inference.py"
REQUIREMENTS = "requirements.txt"
_TEXT = '''"""Written by `fab job inference`."""

from os import environ
from pathlib import Path
from sys import argv

from core.exported.timed.on_node import main

environ.update({variables!r})
main(Path(__file__).parent, *map(int, argv[1:4]))
'''
_OURS = ("cluster", "core", "kernels", "ps_node", "pscluster", "worker_node")
"""What a trained network is opened with: a program of a person finds none of it."""
_PACKAGES = ("onnxruntime>=1.23,<2", "ai-edge-litert>=2.1,<3")
"""The runtimes, as the group `export` of pyproject.toml has them (a test compares them)."""


def written(folder: Path, run: Path) -> Path:
    """Write the program into `folder`, which has `exports` already, with the model of `run`.

    Code of the run travels with it, and runs there in a cage. Return the program's path. Raises
    UsageError for code of others.
    """
    app = own_app(run)
    if app is not None and app.environment:
        say("tensorflow is left out: the app has packages of its own", error=True)
    else:
        shutil.copytree(run / "model", folder / "run" / "model")
        if app is not None:
            look(app.path).write(folder / "run" / FOLDER)
            shutil.copy(run / RECORD, folder / "run")
    for name in _OURS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / REQUIREMENTS).write_text("\n".join(_PACKAGES) + "\n", encoding="utf-8")
    program = folder / PROGRAM
    variables = as_variable(() if app is None else (app.digest,))
    program.write_text(_TEXT.format(variables=variables), encoding="utf-8")
    return program
