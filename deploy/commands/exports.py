"""`fab export`: a trained run as a file for other runtimes, made by a process of the room that knows TensorFlow."""

import os
import subprocess

from cluster.errors import UsageError
from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags
from deploy.common.project import environment_for_any_folder, module_command

_MODULE = "cluster.export"
_NEEDED = {
    "run": "the folder of a finished training, e.g. --run runs/20260101T120000Z-train",
    "to": "a format: --to onnx, litert, savedmodel or keras",
    "out": "a folder to make, e.g. --out walking",
}


@takes("run to quantize out data json_ quiet")
def export(flags: Flags) -> None:
    """Write a trained run for other runtimes: `fab export --run RUN --to onnx --out FOLDER`."""
    given = {"run": flags.run, "to": flags.to, "out": flags.out}
    for name, value in given.items():
        if not value:
            raise UsageError(f"--{name}: expected {_NEEDED[name]}")
    named = {**given, "run": _expanded(flags.run), "out": _expanded(flags.out)}
    named |= {"quantize": flags.quantize, "data": flags.data}
    words = [f"--{name}={value}" for name, value in named.items() if value is not None]
    words += [word for word, wanted in (("--json", flags.json_), ("--quiet", flags.quiet)) if wanted]
    command = module_command(_MODULE, *words)
    end_as_the_job_did(subprocess.run(command, env=environment_for_any_folder()).returncode)


def _expanded(path: str | None) -> str:
    return os.path.expanduser(path or "")
