"""The tables of status and jobs, how a figure is shown, and a question to the person.

Without a terminal they are plain lines. `--watch` draws again and again until Ctrl-C, in place on a
terminal. Everything but yes means no.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.ground.waiting import pause
from core.logs import is_animated, say, visible
from core.logs.lines import duration
from deploy.cluster.services import ClusterStatus, RoleState, RoleStatus

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from core.logs.screen import Screen
    from deploy.converge.systemd import NodeRow
    from deploy.jobs.records import JobRecord


_COLOURS = {
    RoleState.READY: "green",
    RoleState.STARTING: "yellow",
    RoleState.WAITING: "yellow",
    RoleState.STOPPING: "yellow",
    RoleState.STOPPED: "dim",
    RoleState.FROZEN: "red",
    RoleState.FAILED: "red",
}
_JOB_COLOURS = {"running": "yellow", "done": "green", "failed": "red", "interrupted": "red"}
_LEAST_WIDTH = 120
"""A narrower terminal wraps the lines of a table; rich would cut figures out of them."""
_WIDTH_OF_A_FILE = 240
_NARROW = 80
MOST_ROWS = 32
"""Workers with a row each; of more there are those that are unready, restarted or largest."""
ROWS_OF_LARGEST = 4


def console() -> "Screen":
    """A console on today's stdout."""
    from core.logs.screen import Screen

    screen = Screen(soft_wrap=True)
    if screen.is_terminal:
        screen.width = max(screen.width, _LEAST_WIDTH)
    else:
        screen.width = _WIDTH_OF_A_FILE
    return screen


def columns() -> int:
    """Return how many columns today's stdout has."""
    from core.logs.screen import Screen

    screen = Screen()
    if screen.is_terminal:
        return screen.width
    return _WIDTH_OF_A_FILE


def lean_table(headings: Sequence[str], to_the_right: Collection[str] = ()) -> "Table":
    """A table without lines, whose cells do not wrap."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(
            heading, justify="right" if heading in to_the_right else "left", no_wrap=True
        )
    return table


def _add_row(
    table: "Table",
    cells: "Sequence[RenderableType]",
    headings: Sequence[str],
    visible_headings: Collection[str],
) -> None:
    """Add the cells whose headings are kept."""
    table.add_row(
        *(
            cell
            for heading, cell in zip(headings, cells, strict=True)
            if heading in visible_headings
        )
    )


def status_parts(
    status: ClusterStatus, job_pid: int | None, progress: str, columns: int
) -> "list[RenderableType]":
    """Return a row a role, the reasons of unready ones, whether a job runs, its progress.

    Below 80 columns the least important ones are left out.
    """
    from core.logs.screen import coloured, words

    if columns < _NARROW:
        left_out = {"address", "pid"}
    else:
        left_out = set()
    if len({role.node for role in status.roles}) < 2:
        left_out.add("node")
    headings = ("role", "task", "node", "address", "pid", "state", "memory", "uptime", "restarts")
    visible_headings = [heading for heading in headings if heading not in left_out]
    table = lean_table(visible_headings, ("pid", "memory", "uptime", "restarts"))
    folded = _like_others(status.roles)
    for role in status.roles:
        if role in folded:
            continue
        cells = (
            role.role,
            str(role.index),
            role.node,
            role.address,
            str(role.pid or "-"),
            coloured(role.state, _COLOURS[role.state]),
            megabytes(role.anonymous_memory_bytes),
            duration(role.uptime_seconds),
            str(role.restarts),
        )
        _add_row(table, cells, headings, visible_headings)
    unwell = [
        words(f"{role.name} is {role.state}: {role.reason}") for role in status.roles if role.reason
    ]
    if job_pid is None:
        job = "no job runs"
    else:
        job = f"a job runs (fab, pid {job_pid})"
    if folded:
        unwell.insert(0, words(_folded_line(folded)))
    return [table, *unwell, job, *([progress] if progress else [])]


def _like_others(roles: Sequence[RoleStatus]) -> list[RoleStatus]:
    """The workers without a row: of many, those that are ready and never restarted."""
    workers = [role for role in roles if role.role == "worker"]
    if len(workers) <= MOST_ROWS:
        return []
    well = [role for role in workers if role.state is RoleState.READY and not role.restarts]
    well.sort(key=lambda role: -(role.anonymous_memory_bytes or 0))
    return well[ROWS_OF_LARGEST:]


def _folded_line(roles: Sequence[RoleStatus]) -> str:
    memory = [role.anonymous_memory_bytes or 0 for role in roles]
    uptimes = [role.uptime_seconds or 0.0 for role in roles]
    return (
        f"{len(roles)} more workers are ready: {megabytes(min(memory))} to"
        f" {megabytes(max(memory))}, up {duration(min(uptimes))} to {duration(max(uptimes))};"
        " --json has each"
    )


def progress_line(exported: str) -> str:
    """Return `train: epoch 3 of 12, 1,234 windows/s, loss 0.4312, 2 min 05 s left`, or ""."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, float] = {}
    run = ""
    try:
        for family in text_string_to_metric_families(exported):
            for sample in family.samples:
                name = sample.name.removeprefix("pscluster_")
                if name == "job_info":
                    run = sample.labels.get("run", "")
                values[":".join([name, *filter(None, [sample.labels.get("split")])])] = sample.value
    except ValueError:
        return ""
    description = _progress_words(values)
    if description and run:
        return f"{description} (run {run})"
    return description


def _progress_words(values: Mapping[str, float]) -> str:
    epochs = values.get("train_planned_epochs")
    samples = values.get("pi_planned_samples")
    remaining_seconds = values.get("job_remaining_seconds")
    if epochs:
        phrases = [f"train: epoch {values.get('train_epoch', 0):.0f} of {epochs:.0f}"]
        speed = values.get("train_windows_per_second")
        if speed:
            phrases.append(f"{speed:,.0f} windows/s")
        if "train_loss:train" in values:
            phrases.append(f"loss {values['train_loss:train']:.4f}")
        if remaining_seconds is None:
            remaining_seconds = values.get("train_remaining_seconds")
    elif samples:
        phrases = [
            f"pi: {values.get('pi_samples_total', 0) / samples:.0%} of {samples:,.0f} samples"
        ]
    elif values:
        return "a job is starting, or evaluates a model"
    else:
        return ""
    if remaining_seconds and remaining_seconds < 1e9:  # not NaN either
        phrases.append(f"{duration(remaining_seconds)} left")
    return ", ".join(phrases)


def show_jobs(records: "Sequence[JobRecord]") -> None:
    """Show one row a job."""
    from core.logs.screen import coloured

    if not records:
        console().print("no job yet")
        return
    table = lean_table(("job", "state", "begun", "ended", "run"))
    for record in records:
        colour = _JOB_COLOURS.get(record.state.value, "default")
        if record.run_folder:
            run = f"runs/{Path(record.run_folder).name}"
        else:
            run = "-"
        table.add_row(
            record.id, coloured(record.state, colour), record.begun or "-", record.ended or "-", run
        )
    console().print(table)


def megabytes(count: int | None) -> str:
    """`84 MB`; `-` for None."""
    if count is None:
        return "-"
    return f"{count / 1e6:.0f} MB"


_WIDE = 110


def node_parts(rows: "Sequence[NodeRow]", columns: int) -> "list[RenderableType]":
    """Return one row a node, and beneath them the reasons of those that are not well.

    Below 110 columns the least important ones are left out.
    """
    from core.logs.screen import coloured, words

    headings = (
        "node",
        "address",
        "roles",
        "ports",
        "mounts",
        "memory",
        "temperature",
        "release",
        "uptime",
        "restarts",
    )
    visible_headings = (
        headings if columns >= _WIDE else ("node", "roles", "memory", "uptime", "restarts")
    )
    table = lean_table(visible_headings)
    for row in rows:
        if row.well:
            colour = "green"
        else:
            colour = "red"
        cells = (
            row.node,
            row.address,
            coloured(row.roles, colour),
            row.ports,
            row.mounts,
            row.memory,
            row.temperature,
            row.release,
            duration(row.uptime_seconds),
            str(row.restarts),
        )
        _add_row(table, cells, headings, visible_headings)
    unwell = [words(f"{row.node}: {row.trouble}") for row in rows if row.trouble]
    return [table, *unwell, f"{sum(row.well for row in rows)} of {len(rows)} nodes are well"]


def show_again(seconds: float, draw: "Callable[[int], list[RenderableType]]") -> None:
    """Show what `draw` returns for so many columns every so many seconds, until Ctrl-C.

    What cannot be found out is shown as the error it is, and asked for again.
    """
    from core.logs.screen import coloured

    try:
        with _in_place() as show:
            while True:
                try:
                    renderables = draw(columns())
                except ClusterError as problem:
                    renderables = [coloured(str(problem), "red")]
                now = time.strftime("%H:%M:%S")
                heading = coloured(f"{now}  every {seconds:g} s, Ctrl-C ends it", "dim")
                show([heading, *renderables])
                pause(seconds)
    except KeyboardInterrupt:
        return


@contextmanager
def _in_place() -> "Iterator[Callable[[list[RenderableType]], None]]":
    from rich.console import Group
    from rich.live import Live

    from core.logs.screen import Screen

    if not is_animated(sys.stdout):
        screen = console()

        def print_block(renderables: "list[RenderableType]") -> None:
            for renderable in renderables:
                screen.print(renderable)
            screen.print()
            sys.stdout.flush()

        yield print_block
        return
    # As wide as the terminal is: what is redrawn in place must not be wrapped by it.
    with Live(console=Screen(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda renderables: live.update(Group(*renderables), refresh=True)


def require_yes(question: str, otherwise: str, yes_does: str) -> None:
    """Ask, and return after a yes.

    Raises UsageError with the line `otherwise` after anything else: the end of input and Ctrl-C
    too. Where no person can answer, the line says what `--yes` does, such as "pins".
    """
    if sys.stdin is None or not sys.stdin.isatty():  # None: closed before Python began
        raise UsageError(f"{otherwise}: `--yes` {yes_does} without a question")
    try:
        answer = input(visible(f"{question} [y/N] "))
    except (EOFError, KeyboardInterrupt):
        say("", error=True)  # the question's line has no end yet
        answer = ""
    except ValueError:  # bytes that are no text
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError(otherwise)


def may_interrupt(jobs: Sequence[str], yes: bool) -> None:
    """Ask whether these jobs, which run, may be interrupted; `yes` is the answer already.

    Raises UsageError as `require_yes`.
    """
    if jobs and not yes:
        named = f"job {', '.join(jobs)} runs"
        require_yes(
            f"{named}, and this interrupts it; continue?", f"{named}: nothing done", "continues"
        )
