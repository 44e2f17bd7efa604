"""Several steps in one command: each SSH command with sudo costs a busy Pi some tenths of a second. Pure."""

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deploy.common.command_line import quoted
from deploy.converge.change import Shell, Step, Upload
from deploy.rooted.commands import write_file

MARK = "@@step"
SMALL_BYTES = 48 * 1024
"""Of a file that travels inside the script: with its program, a word of a command line has at most 128 KiB."""


@dataclass(frozen=True)
class Item:
    """A step, and the position of the change it belongs to."""

    change: int
    step: Step


@dataclass(frozen=True)
class Ran:
    """What a batch says of one of its steps: its return code and how long it took."""

    position: int
    return_code: int
    seconds: float


def batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items in their order; those that can share one command together, the others alone."""
    together: list[Item] = []
    for item in items:
        if script_of(item.step) is not None:
            together.append(item)
            continue
        if together:
            yield together
            together = []
        yield [item]
    if together:
        yield together


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


def batch_script(items: Sequence[Item]) -> str:
    """Runs the steps in order until one fails; says after each how it ended. Every step has its own deadline."""
    lines = ["now() { cut -d' ' -f1 /proc/uptime; }"]
    for position, item in enumerate(items):
        script = script_of(item.step)
        assert script is not None  # `batches` keeps the others apart
        deadline = item.step.deadline_seconds
        lines.append(
            f"begun=$(now); timeout -k 5 {deadline:.0f} sh -c {quoted(script)} </dev/null; code=$?; "
            f'printf "\\n{MARK} {position:d} $code $begun $(now)\\n"; [ $code = 0 ] || exit $code'
        )
    return "\n".join(lines) + "\n"


def deadline_seconds(items: Sequence[Item]) -> float:
    """Of the whole batch."""
    return sum(item.step.deadline_seconds for item in items) + 10.0


def read(stdout: str) -> tuple[Ran, ...]:
    """What a batch's output says of the steps that ended."""
    ran = []
    for line in stdout.splitlines():
        words = line.split()
        if len(words) == 5 and words[0] == MARK:
            with contextlib.suppress(ValueError):  # another program's line
                ran.append(Ran(int(words[1]), int(words[2]), max(0.0, float(words[4]) - float(words[3]))))
    return tuple(ran)


def output_of_last(stdout: str) -> str:
    """What the last step that ended printed itself."""
    parts = stdout.split(f"\n{MARK} ")
    return parts[-2].partition("\n")[2] if len(parts) > 2 else parts[0]
