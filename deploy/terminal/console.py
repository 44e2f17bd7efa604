"""The tables of status, jobs, findings and deployments, and the progress of a start. Plain lines without a terminal."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.logs.terminal import is_animated, say
from deploy.cluster.services import ClusterStatus, RoleState
from deploy.common.command_line import command
from deploy.converge.apply import StepFailure
from deploy.converge.change import Change, DeploymentDisplay
from deploy.converge.check import Finding, Level
from deploy.converge.node_table import NodeRow
from deploy.converge.recap import Recap
from deploy.converge.this_machine import StartPlan

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from cluster.logs.screen import Screen
    from deploy.jobs.node_job.records import JobRecord


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
_LEVEL_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_LEAST_WIDTH = 120
"""A narrower terminal wraps the lines of a table; rich would cut figures out of them."""
_WIDTH_OF_A_FILE = 240
_NARROW = 80
_NAMED_NODES = 3
"""Beyond these, nodes are counted; those of a problem are all named, because a person has to visit each."""
_LEFT_OUT_NODES = 2


def console() -> "Screen":
    """A console on today's stdout."""
    from cluster.logs.screen import Screen

    made = Screen(soft_wrap=True)
    made.width = max(made.width, _LEAST_WIDTH) if made.is_terminal else _WIDTH_OF_A_FILE
    return made


def show_again(seconds: float, look: "Callable[[int], list[RenderableType]]") -> None:
    """Show what `look` finds for so many columns every so many seconds, until Ctrl-C ends it, as with `watch`.

    In place on a terminal, as blocks elsewhere. What cannot be found out is shown as the error it is, and asked for
    again.
    """
    from cluster.logs.screen import coloured

    try:
        with _in_place() as (columns, show):
            while True:
                try:
                    seen = look(columns())
                except ClusterError as problem:
                    seen = [coloured(str(problem), "red")]
                show([coloured(f"{time.strftime('%H:%M:%S')}  every {seconds:g} s, Ctrl-C ends it", "dim"), *seen])
                time.sleep(seconds)
    except KeyboardInterrupt:
        return


@contextmanager
def _in_place() -> "Iterator[tuple[Callable[[], int], Callable[[list[RenderableType]], None]]]":
    from rich.console import Group
    from rich.live import Live

    from cluster.logs.screen import Screen

    if not is_animated(sys.stdout):
        screen = console()

        def print_block(seen: "list[RenderableType]") -> None:
            for one in seen:
                screen.print(one)
            screen.print()
            sys.stdout.flush()

        yield lambda: screen.width, print_block
        return
    # As wide as the terminal is: what is redrawn in place must not be wrapped by it.
    with Live(console=Screen(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda: Screen().width, lambda seen: live.update(Group(*seen), refresh=True)


def lean_table(headings: Sequence[str], to_the_right: Collection[str] = ()) -> "Table":
    """A table without lines, whose cells do not wrap."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in to_the_right else "left", no_wrap=True)
    return table


def status_parts(
    status: ClusterStatus, job_pid: int | None, progress: str, columns: int
) -> "list[RenderableType]":  # fmt: skip
    """One row a role, the reasons of those that are not ready, whether a job runs, and its progress.

    Below 80 columns the least important ones are left out.
    """
    from cluster.logs.screen import coloured, words

    left_out = {"address", "pid"} if columns < _NARROW else set()
    if len({role.node for role in status.roles}) < 2:
        left_out.add("node")
    headings = ("role", "task", "node", "address", "pid", "state", "memory", "uptime", "restarts")
    kept = [heading for heading in headings if heading not in left_out]
    table = lean_table(kept, ("pid", "memory", "uptime", "restarts"))
    for role in status.roles:
        state = coloured(role.state, _COLOURS[role.state])
        figures = (megabytes(role.anonymous_memory_bytes), duration(role.uptime_seconds), str(role.restarts))
        place = (role.role, str(role.index), role.node, role.address, "-" if role.pid is None else str(role.pid))
        cells: tuple[RenderableType, ...] = (*place, state, *figures)
        table.add_row(*(cell for heading, cell in zip(headings, cells, strict=True) if heading in kept))
    unwell = [words(f"{role.name} is {role.state}: {role.reason}") for role in status.roles if role.reason]
    job = "no job runs" if job_pid is None else f"a job runs (fab, pid {job_pid})"
    return [table, *unwell, job, *([progress] if progress else [])]


def progress_line(exported: str) -> str:
    """`train: epoch 3 of 12, 1,234 windows/s, loss 0.4312, 2 min 05 s left`; empty without a job."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    run = ""
    try:
        for family in text_string_to_metric_families(exported):
            for sample in family.samples:
                if sample.name == "pscluster_job_info":
                    run = sample.labels.get("run", "")
                key = sample.name + (f":{sample.labels['split']}" if "split" in sample.labels else "")
                found[key.removeprefix("pscluster_")] = sample.value
    except ValueError:
        return ""
    words = _progress_words(found)
    return f"{words} (run {run})" if words and run else words


def _progress_words(found: Mapping[str, float]) -> str:
    if found.get("train_planned_epochs"):
        parts = [f"train: epoch {found.get('train_epoch', 0):.0f} of {found['train_planned_epochs']:.0f}"]
        if found.get("train_windows_per_second"):
            parts.append(f"{found['train_windows_per_second']:,.0f} windows/s")
        if "train_loss:train" in found:
            parts.append(f"loss {found['train_loss:train']:.4f}")
        left = found.get("job_remaining_seconds", found.get("train_remaining_seconds"))
    elif found.get("pi_planned_samples"):
        done = found.get("pi_samples_total", 0.0) / found["pi_planned_samples"]
        parts = [f"pi: {done:.0%} of {found['pi_planned_samples']:,.0f} samples"]
        left = found.get("job_remaining_seconds")
    elif found:
        return "a job is starting, or evaluates a model"
    else:
        return ""
    return ", ".join([*parts, *([f"{duration(left)} left"] if left and left == left and left < 1e9 else [])])


def show_jobs(records: "Sequence[JobRecord]") -> None:
    """One row a job."""
    from cluster.logs.screen import coloured

    if not records:
        console().print("no job yet")
        return
    table = lean_table(("job", "state", "begun", "ended", "run"))
    for record in records:
        colour = _JOB_COLOURS.get(record.state.value, "default")
        run = f"runs/{Path(record.run_folder).name}" if record.run_folder else "-"
        table.add_row(record.id, coloured(record.state, colour), record.begun or "-", record.ended or "-", run)
    console().print(table)


def show_plan(plan: StartPlan, inventory: Path) -> None:
    """One line a step, and the command that carries the plan out."""
    from cluster.logs.screen import words

    screen = console()
    for step in plan.steps:
        screen.print(words(f"  {step.kind:<8}{step.subject:<12}{step.detail}"))
    if plan.changes:
        screen.print(f"{plan.changes} to change; `{command('deploy start', inventory)}` does it")
    elif not plan.refusals:
        screen.print("nothing to change")


def show_findings(findings: Sequence[Finding]) -> None:
    """One line a finding, with the nodes that share it."""
    from cluster.logs.screen import words

    screen = console()
    groups = grouped(findings)
    width = max((len(group.nodes) for group in groups), default=0)
    for group in groups:
        nodes = f"{group.nodes:<{width}}  " if width else ""
        level = (f"{group.level:<8}", _LEVEL_COLOURS[group.level])
        screen.print(words("  ", level, f" {nodes}{group.topic:<14}{group.line}"))


@dataclass(frozen=True)
class FindingGroup:
    """One finding and its nodes: `all 16 nodes`, `15 nodes (all but rpi11)`, empty without nodes."""

    level: Level
    topic: str
    line: str
    nodes: str


def grouped(findings: Sequence[Finding]) -> tuple[FindingGroup, ...]:
    """Equal findings of several nodes as one, in the order of the first of each."""
    everyone = tuple(dict.fromkeys(finding.node for finding in findings if finding.node))
    of_same: dict[tuple[Level, str, str], list[str]] = {}
    for finding in findings:
        names = of_same.setdefault((finding.level, finding.topic, finding.line), [])
        if finding.node and finding.node not in names:
            names.append(finding.node)
    return tuple(
        FindingGroup(*same, name_nodes(names, everyone, every_name=same[0] == "problem"))
        for same, names in of_same.items()
    )


def name_nodes(names: Sequence[str], everyone: Sequence[str], *, every_name: bool = False) -> str:
    """Some of the nodes `everyone`, in few words."""
    if len(names) <= _NAMED_NODES:
        return ", ".join(names)
    others = [name for name in everyone if name not in names]
    if not others:
        return f"all {len(names)} nodes"
    if len(others) <= _LEFT_OUT_NODES:
        return f"{len(names)} nodes (all but {', '.join(others)})"
    if every_name:
        return ", ".join(names)
    return f"{len(names)} nodes ({names[0]}, ...)"


class Progress(DeploymentDisplay):
    """The progress of a deployment. This one shows nothing; `update` changes the words beside a spinner."""

    def __init__(self, update: Callable[[str], None] | None = None) -> None:
        self._update = update
        self._said: dict[str, str] = {}
        self.warnings: list[str] = []

    def warning(self, line: str) -> None:
        """See `DeploymentDisplay`."""
        self.warnings.append(line)


class ProgressOfRoles(Progress):
    """Which roles are ready: beside a spinner, else one line a role."""

    def roles(self, status: ClusterStatus) -> None:
        """See `DeploymentDisplay`."""
        if self._update is not None:
            ready = len(status.in_state(RoleState.READY))
            waiting = ", ".join(role.name for role in status.roles if role.state is not RoleState.READY)
            self._update(f"{ready} of {len(status.roles)} roles ready" + (f", waiting for {waiting}" * bool(waiting)))
            return
        for role in status.roles:
            line = f"{role.name} {role.state}" + (f": {role.reason}" if role.reason else "")
            # The command ends with the failures, on stderr.
            if role.state not in (RoleState.STARTING, RoleState.FAILED) and self._said.get(role.name) != line:
                self._said[role.name] = line
                say(line)


class ProgressOfNodes(Progress):
    """What is done on which node: the last event beside a spinner, else one line an event."""

    def line(self, node: str, line: str) -> None:
        """See `DeploymentDisplay`."""
        (self._update or say)(f"{node}: {line}" if node else line)


@contextmanager
def progress(kind: type[Progress], words: str) -> Iterator[Progress]:
    """Shown while it lasts, with a spinner on a terminal; then its warnings."""
    if kind is not Progress and is_animated(sys.stdout):
        from cluster.logs.screen import spinner

        with spinner(words) as update:
            shown = kind(update)
            yield shown
    else:
        shown = kind()
        yield shown
    for line in shown.warnings:
        say(f"warning: {line}", error=True)


def megabytes(count: int | None) -> str:
    """`84 MB`; `-` for None."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"


def duration(seconds: float | None) -> str:
    """`42 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`; `-` for None."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    for size, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller:02d} {smaller_name}"
    return f"{whole} s"


_WIDE = 110
_STATE_COLOURS = {"ok": "green", "changed": "yellow", "failed": "red"}


def show_plans(plans: Mapping[str, Mapping[str, Sequence[Change]]], unfit: Mapping[str, StepFailure]) -> None:
    """Every change once, with its nodes, and the differences of files that change."""
    from cluster.logs.screen import words

    screen = console()
    for failure in unfit.values():
        screen.print(words("  ", ("unfit", "red"), f"    {failure.line}"))
    for phase, nodes in plans.items():
        same: dict[tuple[str, str, str, str, str], list[str]] = {}
        for node, changes in nodes.items():
            for change in changes:
                diff = change.diff if change.action == "change" else ""
                key = (change.action, change.kind, change.subject, change.detail, diff)
                same.setdefault(key, []).append(node)
        if same:
            screen.print(words((phase, "bold")))
        for (action, kind, subject, detail, diff), names in same.items():
            where = names[0] if len(names) == 1 else f"{len(names)} nodes ({names[0]}, ...)"
            screen.print(words(f"  {action:<8} {kind:<12} {subject}: {detail}  on {where}"))
            for line in diff.splitlines():
                colour = {"+": "green", "-": "red"}.get(line[:1], "dim")
                screen.print(words("      ", (line, colour)))


def show_recap(recap: Recap, path: Path) -> None:
    """Nodes by phases, the reasons of the failed ones, and one line of sums."""
    from cluster.logs.screen import coloured, words

    screen = console()
    if recap.phases or recap.failures:
        table = lean_table(("node", *recap.phases, "state"))
        for row in recap.rows():
            colour = _STATE_COLOURS[row[-1]]
            table.add_row(*row[:-1], coloured(row[-1], colour))
        screen.print(table)
    for failure in recap.failures.values():
        screen.print(words(("failed", "red"), f" {failure.line}"))
    for note in recap.notes:
        screen.print(words(note))
    screen.print(words(f"{recap.summary()}  ({path})"))


def node_parts(rows: Sequence[NodeRow], columns: int) -> "list[RenderableType]":
    """One row a node, and beneath them the reasons of those that are not well.

    Below 110 columns the least important ones are left out.
    """
    from cluster.logs.screen import coloured, words

    headings = ("node", "address", "roles", "ports", "mounts", "memory", "temperature", "release", "uptime", "restarts")
    kept = headings if columns >= _WIDE else ("node", "roles", "memory", "uptime", "restarts")
    table = lean_table(kept)
    for row in rows:
        colour = "green" if row.well else "red"
        cells: tuple[RenderableType, ...] = (
            *(row.node, row.address, coloured(row.roles, colour), row.ports, row.mounts, row.memory),
            *(row.temperature, row.release, duration(row.uptime_seconds), str(row.restarts)),
        )
        table.add_row(*(cell for heading, cell in zip(headings, cells, strict=True) if heading in kept))
    unwell = [words(f"{row.node}: {row.trouble}") for row in rows if row.trouble]
    return [table, *unwell, f"{sum(row.well for row in rows)} of {len(rows)} nodes are well"]
