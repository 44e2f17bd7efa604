"""Carrying out the steps of changes on one node.

Several steps travel in one command: each SSH command with sudo costs a busy Pi some tenths of a
second.
"""

import base64
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

from core.ground.errors import ClusterError
from deploy.cluster.connector import (
    DEADLINE_CODES,
    CommandResult,
    Connector,
    NodeUnreachableError,
)
from deploy.cluster.fleet import Fleet, split_errors
from deploy.common.command_line import Words, quoted, shell
from deploy.converge.subject import (
    SILENT,
    Call,
    Change,
    DeploymentDisplay,
    Learn,
    Publish,
    Reconnect,
    Shell,
    Step,
    Upload,
)
from deploy.release.scripts import finish_folder, missing_files, read_missing
from deploy.rooted.commands import write_file

MARK = f"@@{secrets.token_hex(16)}"
"""The beginning of the line after each step; nothing that a step prints can hold it."""
SMALL_BYTES = 48 * 1024
"""A file up to this size travels inside the script.

With its program, a word of a command line has at most 128 KiB.
"""


@dataclass(frozen=True)
class StepOfChange:
    """A step, and the position of the change it belongs to."""

    change: int
    step: Step


def batches(items: Sequence[StepOfChange]) -> Iterator[list[StepOfChange]]:
    """Yield the items in order: those that can share one command together, the others alone."""
    for together, group in groupby(items, key=lambda item: script_of(item.step) is not None):
        chosen = list(group)
        yield from [chosen] if together else [[item] for item in chosen]


def script_of(step: Step) -> str | None:
    """A step as shell commands; None for one that needs a connection of its own."""
    match step:
        case Shell(stdin=None):
            return step.script
        case Upload(content=bytes() as content) if len(content) <= SMALL_BYTES:
            written = quoted(*write_file(step.path, step.mode, step.owner))
            return f"printf %s {quoted(base64.b64encode(content).decode())} | base64 -d | {written}"
        case _:
            return None


def batch_script(items: Sequence[StepOfChange]) -> str:
    """Runs the steps in order until one fails; says after each how it ended.

    Every step has its own deadline.
    """
    lines = ["now() { cut -d' ' -f1 /proc/uptime; }"]
    for item in items:
        script = script_of(item.step)
        assert script is not None  # `batches` keeps the others apart
        deadline = item.step.deadline_seconds
        lines.append(
            f"begun=$(now); timeout -k 5 {deadline:.0f} sh -c {quoted(script)} </dev/null;"
            " code=$?; "
            f'printf "\\n{MARK} $code $begun $(now)\\n"; [ $code = 0 ] || exit $code'
        )
    return "\n".join(lines) + "\n"


def read_batch(stdout: str) -> list[tuple[int, float]]:
    """Return the return code and the seconds of each step that ended, in order."""
    ended = []
    for line in stdout.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0] == MARK:
            with contextlib.suppress(ValueError):  # another program's line
                ended.append((int(fields[1]), max(0.0, float(fields[3]) - float(fields[2]))))
    return ended


def output_of_last(stdout: str) -> str:
    """Return what the last step that ended printed itself."""
    segments = stdout.split(f"\n{MARK} ")
    if len(segments) > 2:
        return segments[-2].partition("\n")[2]
    return segments[0]


_SECONDS_A_MEGABYTE = 2.0
"""The longest time for a megabyte on its way: a Pi 3 on a bad switch."""


class StepFailedError(ClusterError):
    """A step that did not do what it should: the record says all there is to say."""

    def __init__(self, record: "StepFailure") -> None:
        super().__init__(record.line)
        self.record = record


LAST_LINES = 6


@dataclass(frozen=True)
class StepFailure:
    """Where and why a node left the run.

    `return_code` is None where the command did not come to an end.
    """

    node: str
    phase: str
    step: str
    last_lines: tuple[str, ...]
    hint: str = ""
    command: str = ""
    return_code: int | None = None

    @property
    def line(self) -> str:
        """One line for the recap."""
        line = f"{self.node}: {self.step}"
        if self.return_code is not None:
            line += f" (exit code {self.return_code})"
        if self.last_lines:
            line += f": {' | '.join(self.last_lines[-3:])}"
        if self.hint:
            line += f"; {self.hint}"
        return line

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Survey(Generic[Facts]):
    """What the nodes answered; `lost` has the failure of each that did not."""

    facts: Mapping[str, Facts]
    lost: Mapping[str, StepFailure]


def survey(
    fleet: Fleet, ask: Callable[[Connector], Facts], names: Sequence[str] | None = None
) -> Survey[Facts]:
    """Call `ask` with every node (of `names`) at once."""
    facts, errors = split_errors(fleet.each(ask, names))
    return Survey(facts, {name: failure_of(name, error) for name, error in errors.items()})


def failure_of(name: str, error: ClusterError) -> StepFailure:
    """The record of an error that a node raised."""
    if isinstance(error, StepFailedError):
        return error.record
    message = str(error).removeprefix(name).lstrip(": ")
    return StepFailure(name, "facts", "look at the node", (message,))


Done = Callable[[Change, float], None]
"""A function that gets each complete change and the seconds it took."""


def apply(
    node: Connector,
    phase: str,
    changes: Sequence[Change],
    done: Done,
    progress: DeploymentDisplay = SILENT,
) -> None:
    """Carry out changes in their order, with as many steps as possible in one command.

    Raises StepFailedError.
    """
    items = [
        StepOfChange(position, step)
        for position, change in enumerate(changes)
        for step in change.steps
    ]
    remaining_steps = [len(change.steps) for change in changes]
    seconds = [0.0 for _ in changes]

    def count(item: StepOfChange, took: float) -> None:
        remaining_steps[item.change] -= 1
        seconds[item.change] += took
        if not remaining_steps[item.change]:
            done(changes[item.change], seconds[item.change])

    for group in batches(items):
        step = group[0].step
        begun = time.monotonic()
        try:
            if script_of(step) is not None:
                _run_batch(node, phase, group, count)
            else:
                _carry_out(node, step, progress)
                count(group[0], time.monotonic() - begun)
        except StepFailedError:
            raise
        except _RefusedError as refused:
            raise _failed(node, phase, step, refused.outcome) from refused
        except ClusterError as error:
            raise _ended(node, phase, step, str(error)) from error


class _RefusedError(Exception):
    def __init__(self, outcome: CommandResult) -> None:
        super().__init__(outcome.command)
        self.outcome = outcome


def _failed(node: Connector, phase: str, step: Step, outcome: CommandResult) -> StepFailedError:
    """Return the error of a step whose command failed."""
    output = outcome.stderr.strip() or output_of_last(outcome.text).strip()
    lines = tuple(output.splitlines()[-LAST_LINES:])
    command = outcome.command
    hint = ""
    if isinstance(step, Shell):
        command = step.script
        hint = step.hint
    return StepFailedError(
        StepFailure(node.name, phase, step.what, lines, hint, command, outcome.return_code)
    )


def _ended(node: Connector, phase: str, step: Step, message: str) -> StepFailedError:
    """Return the error of a step that did not come to an end."""
    line = message.removeprefix(f"{node.name}: ")
    return StepFailedError(StepFailure(node.name, phase, step.what, (line,)))


def _run_batch(
    node: Connector,
    phase: str,
    group: Sequence[StepOfChange],
    count: Callable[[StepOfChange, float], None],
) -> None:
    script = batch_script(group).encode()
    seconds = sum(item.step.deadline_seconds for item in group) + 10.0
    last = len(group) - 1
    try:
        outcome = node.run(["sh", "-s"], stdin=script, deadline_seconds=seconds, root=True)
    except NodeUnreachableError as error:
        ended = read_batch(error.printed.decode(errors="replace"))
        remedy = "if it lost power, run `fab deploy start --retry` once it is back"
        step = group[min(len(ended), last)].step
        raise _ended(node, phase, step, f"{error}; {remedy}") from error
    done = [seconds for code, seconds in read_batch(outcome.text)[: len(group)] if code == 0]
    for item, seconds in zip(group, done, strict=False):
        count(item, seconds)
    if outcome.ok and len(done) == len(group):
        return
    step = group[min(len(done), last)].step
    if outcome.return_code in DEADLINE_CODES:
        overdue = f"not done within {step.deadline_seconds:.0f} s and ended"
        raise _ended(node, phase, step, overdue)
    raise _failed(node, phase, step, outcome)


def _carry_out(node: Connector, step: Step, progress: DeploymentDisplay) -> None:
    match step:
        case Shell():
            content = b""
            if step.stdin is not None:
                content = step.stdin.read_bytes()
            _run(node, shell(step.script), step.deadline_seconds, stdin=content)
        case Upload():
            match step.content:
                case bytes():
                    content = step.content
                case Path():
                    content = step.content.read_bytes()
                case _:
                    content = step.content()
            _run(
                node,
                write_file(step.path, step.mode, step.owner),
                step.deadline_seconds,
                stdin=content,
            )
        case Learn():
            step.receive(_run(node, shell(step.script), step.deadline_seconds).text)
        case Reconnect():
            node.close()
            _run(node, ["true"], step.deadline_seconds)
        case Publish():
            _publish(node, step)
        case Call():
            step.action(progress)


def _run(
    node: Connector,
    command: Words,
    deadline_seconds: float,
    user: str | None = None,
    stdin: bytes = b"",
) -> CommandResult:
    outcome = node.run(
        command, deadline_seconds=deadline_seconds, stdin=stdin, root=user is None, user=user
    )
    if not outcome.ok:
        raise _RefusedError(outcome)
    return outcome


def _publish(node: Connector, step: Publish) -> None:
    sums = {file.name: file.sha256 for file in step.files}
    seconds = 30.0 + step.size_bytes / 1e6 * _SECONDS_A_MEGABYTE
    sizes = {file.name: file.size_bytes for file in step.files}
    listing = _run(node, shell(missing_files(step.folder, sums)), seconds, step.user)
    missing = frozenset(read_missing(listing.text, sizes))
    for file in step.files:
        if file.name in missing:
            node.put(
                file.path,
                f"{step.folder}/{file.name}",
                deadline_seconds=30.0 + file.size_bytes / 1e6 * _SECONDS_A_MEGABYTE,
                root=step.user is None,
                user=step.user,
            )
    _run(node, shell(finish_folder(step.folder, sums)), seconds, step.user)


def by_hand(node: Connector) -> str:
    """Return where a person looks when a command on a node failed."""
    return (
        f"`fab deploy logs --node {node.name}` says more, `fab deploy ssh --node {node.name}` looks"
        " at it by hand"
    )


def run_as_root(
    node: Connector,
    command: Words,
    failed: str,
    deadline_seconds: float,
    stdin: bytes = b"",
) -> str:
    """Return what a command printed. Raises ClusterError, which says what has `failed`."""
    done = node.run(command, stdin=stdin, root=True, deadline_seconds=deadline_seconds)
    if not done.ok:
        lines = " | ".join(done.last_lines[-3:])
        raise ClusterError(f"{node.name}: {failed}: {lines}; {by_hand(node)}")
    return done.text
