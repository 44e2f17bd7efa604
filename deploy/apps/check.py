"""One step of an app in a process of its own: `fab` itself imports neither TensorFlow nor an app."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.apps.files import look
from cluster.apps.measured import MeasuredStep
from cluster.errors import ClusterError, ExitCode, UsageError
from deploy.common.interrupts import interruptible
from deploy.common.project import die_with_parent, environment_for_any_folder, module_command

_MODULE = "cluster.jobs.check_app"


def measured_step(
    inventory: Path, overrides: Sequence[str], app: Path, environment: Callable[[Path], str]
) -> MeasuredStep:  # fmt: skip
    """Run some steps of the app as `overrides` of the inventory name it; what the app prints is not shown.

    `environment` makes the one of a requirements file and returns its key. Raises ClusterError with the line that the
    process ended with, and KeyboardInterrupt.
    """
    requirements = look(app).requirements
    key = "" if requirements is None else environment(requirements)
    settings = [word for override in overrides for word in ("--set", override)]
    words = module_command(
        _MODULE, "--inventory", str(inventory), *settings, *(("--environment", key) if key else ())
    )  # fmt: skip
    with interruptible(), subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=environment_for_any_folder(), preexec_fn=die_with_parent(),
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode == ExitCode.DONE:
        return MeasuredStep.of_json(output.strip().rpartition("\n")[2])
    said = errors.strip().splitlines()
    if process.returncode == ExitCode.CANCELLED:
        raise KeyboardInterrupt
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        last = f"; its last line: {said[-1]:.200}" if said else ""
        raise ClusterError(f"{app}: its process ended with {name}: out of memory? `dmesg` shows it{last}")
    kind = UsageError if process.returncode == ExitCode.BAD_USAGE else ClusterError
    raise kind(said[-1] if said else f"{app}: its process ended with code {process.returncode} and said nothing")
