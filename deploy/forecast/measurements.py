"""A training or one step of an app that runs for a moment in its own process, to be measured.

`fab` imports neither TensorFlow nor an app.
"""

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Generic, TypeVar

from cluster.apps.files import files_of_app
from cluster.apps.measured import MeasuredStep
from cluster.sweeps.progress import Advance, MemberOutput
from core.ground.children import Child
from core.ground.errors import ClusterError, ExitCode, UsageError
from deploy.common.command_line import settings
from deploy.common.interrupts import interruptible
from deploy.common.project import environment_for_any_folder, module_command
from deploy.forecast.sweep import MeasuredRun
from deploy.supervisor.processes import anonymous_memory_bytes

MODULE = "cluster.sweeps.member"
ENOUGH_SECONDS = 3.0
"""Seconds of updates that are enough."""
LONGEST_SECONDS = 300.0
END_SECONDS = 5.0


def measured_run(
    inventory: Path, overrides: Sequence[str], named: str, flags: Sequence[str] = ()
) -> MeasuredRun:
    """Begin the training of these overrides here, alone, and end it after a few seconds of updates.

    `named` are its settings in words. Raises ClusterError with the line that it ended with,
    KeyboardInterrupt.
    """
    arguments = settings((*overrides, "page.listen=off"))
    with tempfile.TemporaryDirectory(prefix="pscluster-sweep-") as folder:
        command = module_command(
            MODULE,
            "--folder",
            folder,
            "--",
            "--inventory",
            str(inventory),
            *arguments,
            "--quiet",
            *flags,
        )
        with (
            interruptible(),
            Child(
                command,
                environment=environment_for_any_folder(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            return _watched(process, named)


Sample = TypeVar("Sample")


@dataclass(frozen=True)
class AdvanceReading(Generic[Sample]):
    """How far a training was at a time, and what was read of its processes then."""

    time: float
    advance: Advance
    sample: Sample


def advances_of(
    process: Child,
    named: str,
    sample: Callable[[], Sample],
    enough: Callable[[AdvanceReading[Sample]], bool],
    refuse_ended: Callable[[], None] = lambda: None,
) -> list[AdvanceReading[Sample]]:
    """Read how far a training is until it is `enough`, it ends, or LONGEST_SECONDS are over.

    Raises ClusterError with the line that it ended with, if it came to no update, and what
    `refuse_ended()`, called each second, raises.
    """
    assert process.stdout is not None
    begin = time.monotonic()
    lines = MemberOutput()
    readings: list[AdvanceReading[Sample]] = []
    is_enough = False
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not is_enough and time.monotonic() - begin < LONGEST_SECONDS:
            refuse_ended()
            if not selector.select(1.0):
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            for message in lines.add(piece):
                if isinstance(message, Advance):
                    readings.append(AdvanceReading(time.monotonic(), message, sample()))
                    is_enough = enough(readings[-1])
            if not piece:
                break
    lines.close()
    if not readings or not readings[-1].advance.done:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        kind = UsageError if process.returncode == ExitCode.BAD_USAGE else ClusterError
        raise kind(
            f"{named}: its training did not come to an update: {lines.last or 'it said nothing'}"
        )
    return readings


def _watched(process: Child, named: str) -> MeasuredRun:
    begin = time.monotonic()
    times: list[float] = []

    def enough(reading: AdvanceReading[int]) -> bool:
        times.append(reading.time)
        return times[-1] - times[0] >= ENOUGH_SECONDS

    readings = advances_of(process, named, lambda: anonymous_memory_bytes(process.pid) or 0, enough)
    first = readings[0]
    latest = readings[-1]
    updates = latest.advance.done - first.advance.done
    if updates:
        update_seconds = (latest.time - first.time) / updates
    else:
        update_seconds = (latest.time - begin) / latest.advance.done
    start = max(0.0, first.time - begin - update_seconds * first.advance.done)
    memory = max(reading.sample for reading in readings)
    return MeasuredRun(named, start, update_seconds, latest.advance.total, memory)


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
