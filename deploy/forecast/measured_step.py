"""One step of an app in a process of its own: `fab` imports neither TensorFlow nor an app."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals

from cluster.apps.files import files_of_app
from cluster.apps.measured import MeasuredStep
from core.ground.children import Child
from core.ground.errors import ClusterError, ExitCode, UsageError
from deploy.common.command_line import settings
from deploy.common.interrupts import interruptible
from deploy.common.project import environment_for_any_folder, module_command

_MODULE = "cluster.jobs.check_app"


def measured_step(
    inventory: Path, overrides: Sequence[str], app: Path, environment: Callable[[Path], str]
) -> MeasuredStep:
    """Run some steps of the app that `overrides` of the inventory name.

    What the app prints is not shown. `environment` makes the one of a requirements file and returns
    its key. Raises ClusterError with the line that the process ended with, and KeyboardInterrupt.
    """
    requirements = files_of_app(app).requirements
    arguments = ["--inventory", str(inventory), *settings(overrides)]
    if requirements is not None:
        key = environment(requirements)
        if key:
            arguments += ["--environment", key]
    with (
        interruptible(),
        Child(
            module_command(_MODULE, *arguments),
            environment=environment_for_any_folder(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child,
    ):
        output, errors = (text.decode(errors="replace") for text in child.communicate())
    if child.returncode == ExitCode.DONE:
        return MeasuredStep.of_json(output.strip().rpartition("\n")[2])
    if child.returncode == ExitCode.CANCELLED:
        raise KeyboardInterrupt
    raise _failure(app, child.returncode, errors.strip().splitlines())


def _failure(app: Path, code: int, lines: Sequence[str]) -> ClusterError:
    """Return why the process of an app failed: `lines` is what it wrote as errors."""
    if code < 0:
        why = (
            f"{app}: its process ended with {Signals(-code).name}: out of memory? `dmesg` shows it"
        )
        if lines:
            why += f"; its last line: {lines[-1]:.200}"
        return ClusterError(why)
    why = f"{app}: its process ended with code {code} and said nothing"
    if lines:
        why = lines[-1]
    if code == ExitCode.BAD_USAGE:
        return UsageError(why)
    return ClusterError(why)
