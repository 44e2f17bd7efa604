"""The steps of changes, carried out on one node; what came of each."""

import shlex
import time
from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import ClusterError
from deploy.converge.change import Change, Publish, Reconnect, Shell, Step, Upload
from deploy.release.publish_scripts import finish_folder, missing_files, read_missing
from deploy.remote.connection import NodeConnection
from deploy.remote.outcome import Outcome

_SECONDS_A_MEGABYTE = 2.0
"""Longest for a megabyte on its way: a Pi 3 on a bad switch."""


class StepFailedError(ClusterError):
    """A step that did not do what it should: the record says all there is to say."""

    def __init__(self, record: "StepFailure") -> None:
        super().__init__(record.line)
        self.record = record


@dataclass(frozen=True)
class StepFailure:
    """Where and why a node left the run. `return_code` is None where the command did not come to an end."""

    node: str
    phase: str
    step: str
    command: str
    return_code: int | None
    last_lines: tuple[str, ...]
    hint: str

    @property
    def line(self) -> str:
        """One line for the recap."""
        code = "" if self.return_code is None else f" (exit code {self.return_code})"
        said = f": {' | '.join(self.last_lines[-3:])}" if self.last_lines else ""
        return f"{self.node}: {self.step}{code}{said}" + (f"; {self.hint}" if self.hint else "")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def apply(node: NodeConnection, phase: str, change: Change) -> float:
    """Carry out one change; the seconds it took. Raises StepFailedError."""
    begun = time.monotonic()
    for step in change.steps:
        try:
            _carry_out(node, step)
        except _RefusedError as refused:
            hint = step.hint if isinstance(step, Shell) else ""
            outcome = refused.outcome
            record = StepFailure(
                node.name, phase, step.what, outcome.command, outcome.return_code, outcome.last_lines, hint
            )
            raise StepFailedError(record) from refused
        except ClusterError as error:
            message = str(error).removeprefix(f"{node.name}: ")
            raise StepFailedError(StepFailure(node.name, phase, step.what, "", None, (message,), "")) from error
    return time.monotonic() - begun


class _RefusedError(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.command)
        self.outcome = outcome


def _carry_out(node: NodeConnection, step: Step) -> None:
    match step:
        case Shell():
            _run(
                node, step.script, step.deadline_seconds, stdin=None if step.stdin is None else step.stdin.read_bytes()
            )
        case Upload():
            node.put(step.content, step.path, deadline_seconds=step.deadline_seconds, root=True, mode=step.mode)
            if step.owner != "root":
                _run(node, f"chown {step.owner}: {shlex.quote(step.path)}", 10.0)
        case Reconnect():
            node.close()
            _run(node, "true", step.deadline_seconds)
        case Publish():
            _publish(node, step)


def _run(
    node: NodeConnection, script: str, deadline_seconds: float, user: str | None = None, stdin: bytes | None = None
) -> Outcome:
    outcome = node.run(script, deadline_seconds=deadline_seconds, stdin=stdin, root=user is None, user=user)
    if not outcome.ok:
        raise _RefusedError(outcome)
    return outcome


def _publish(node: NodeConnection, step: Publish) -> None:
    sums = {file.name: file.sha256 for file in step.files}
    seconds = 30.0 + step.size_bytes / 1e6 * _SECONDS_A_MEGABYTE
    missing = frozenset(read_missing(_run(node, missing_files(step.folder, sums), seconds, step.user).text))
    for file in step.files:
        if file.name in missing:
            node.put(
                file.path,
                f"{step.folder}/{file.name}",
                deadline_seconds=30.0 + file.size_bytes / 1e6 * _SECONDS_A_MEGABYTE,
                root=step.user is None,
                user=step.user,
            )
    _run(node, finish_folder(step.folder, sums), seconds, step.user)
