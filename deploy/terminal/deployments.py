"""A deployment or a check at the terminal: what would change, how far it is, how it ended.

A finding is one line, with the nodes that share it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.logs import is_animated, say
from deploy.cluster.services import ClusterStatus, RoleState
from deploy.common.command_line import command
from deploy.converge.apply import StepFailure
from deploy.converge.check import Finding, Level
from deploy.converge.recap import Recap
from deploy.converge.subject import Change, DeploymentDisplay
from deploy.converge.this_machine import changes_of
from deploy.terminal.console import console, lean_table

_STATE_COLOURS = {"ok": "green", "changed": "yellow", "failed": "red"}


class Progress(DeploymentDisplay):
    """The progress of a deployment.

    This one shows nothing; `update` changes the words beside a spinner.
    """

    def __init__(self, update: Callable[[str], None] | None = None) -> None:
        self._update = update
        self.moving = ExitStack()
        self._said: dict[str, str] = {}
        self.warnings: list[str] = []

    def stand_still(self) -> None:
        """End the spinner, so that a person can be asked; what comes after it is lines."""
        self._update = None
        self.moving.close()

    def warning(self, line: str) -> None:
        """Keep a warning for the end."""
        self.warnings.append(line)


class ProgressOfRoles(Progress):
    """Which roles are ready: beside a spinner, else one line a role."""

    def roles(self, status: ClusterStatus) -> None:
        """Show which roles are ready."""
        if self._update is not None:
            ready = len(status.in_state(RoleState.READY))
            waiting = ", ".join(
                role.name for role in status.roles if role.state is not RoleState.READY
            )
            self._update(
                f"{ready} of {len(status.roles)} roles ready"
                + (f", waiting for {waiting}" * bool(waiting))
            )
            return
        for role in status.roles:
            line = f"{role.name} {role.state}" + (f": {role.reason}" if role.reason else "")
            # The command ends with the failures, on stderr.
            if (
                role.state not in (RoleState.STARTING, RoleState.FAILED)
                and self._said.get(role.name) != line
            ):
                self._said[role.name] = line
                say(line)


class ProgressOfNodes(Progress):
    """What is done on which node: the last event beside a spinner, else one line an event."""

    def line(self, node: str, line: str) -> None:
        """Show an event of a node."""
        (self._update or say)(f"{node}: {line}" if node else line)


@contextmanager
def progress(kind: type[Progress], title: str) -> Iterator[Progress]:
    """Shown while it lasts, with a spinner on a terminal; then its warnings."""
    if kind is not Progress and is_animated(sys.stdout):
        from core.logs.screen import spinner

        with ExitStack() as moving:
            display = kind(moving.enter_context(spinner(title)))
            display.moving = moving
            yield display
    else:
        display = kind()
        yield display
    for line in display.warnings:
        say(f"warning: {line}", error=True)


def show_steps(steps: Sequence[Change], inventory: Path) -> None:
    """Show one line a step, and the command that carries the plan out."""
    from core.logs.screen import words

    screen = console()
    changes = changes_of(steps)
    for step in steps:
        screen.print(words(f"  {step.action:<8}{step.subject:<12}{step.detail}"))
    if changes:
        screen.print(f"{changes} to change; `{command('deploy start', inventory)}` does it")
    elif all(step.action != "refuse" for step in steps):
        screen.print("nothing to change")


def show_plans(
    plans: Mapping[str, Mapping[str, Sequence[Change]]],
    unfit: Mapping[str, StepFailure],
    addresses: Sequence[str] = (),
) -> None:
    """Show every change once, with its nodes, and the differences of files that change."""
    from core.logs.screen import words

    screen = console()
    for failure in unfit.values():
        screen.print(words("  ", ("unfit", "red"), f"    {failure.line}"))
    for line in addresses:
        screen.print(words(f"  {line}"))
    for phase, nodes in plans.items():
        same: dict[tuple[str, str, str, str, str], list[str]] = {}
        for node, changes in nodes.items():
            for change in changes:
                if change.action == "change":
                    diff = change.diff
                else:
                    diff = ""
                key = (change.action, change.kind, change.subject, change.detail, diff)
                same.setdefault(key, []).append(node)
        if same:
            screen.print(words((phase, "bold")))
        for (action, kind, subject, detail, diff), names in same.items():
            if len(names) == 1:
                where = names[0]
            else:
                where = f"{len(names)} nodes ({names[0]}, ...)"
            screen.print(words(f"  {action:<8} {kind:<12} {subject}: {detail}  on {where}"))
            for line in diff.splitlines():
                colour = {"+": "green", "-": "red"}.get(line[:1], "dim")
                screen.print(words("      ", (line, colour)))


def show_recap(recap: Recap, path: Path) -> None:
    """Nodes by phases, the reasons of the failed ones, and one line of sums."""
    from core.logs.screen import coloured, words

    screen = console()
    if recap.phases or recap.failures:
        table = lean_table(("node", *recap.phases, "state"))
        for row in recap.rows():
            colour = _STATE_COLOURS[row[-1]]
            table.add_row(*row[:-1], coloured(row[-1], colour))
        screen.print(table)
    for failure in recap.failures.values():
        screen.print(words(("failed", "red"), f" {failure.line}"))
    for note in (*recap.addresses, *recap.notes):
        screen.print(words(note))
    screen.print(words(f"{recap.summary()}  ({path})"))


_LEVEL_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


_NAMED_NODES = 3
"""Beyond these, nodes are counted; those of a problem are all named, because a person has to visit
each."""


_LEFT_OUT_NODES = 2


def show_findings(findings: Sequence[Finding]) -> None:
    """Show one line a finding, with the nodes that share it."""
    from core.logs.screen import words

    screen = console()
    groups = grouped(findings)
    width = max((len(group.nodes) for group in groups), default=0)
    for group in groups:
        if width:
            nodes = f"{group.nodes:<{width}}  "
        else:
            nodes = ""
        level = (f"{group.level:<8}", _LEVEL_COLOURS[group.level])
        screen.print(words("  ", level, f" {nodes}{group.topic:<14}{group.line}"))


@dataclass(frozen=True)
class FindingGroup:
    """One finding, and its nodes in words: `all 16 nodes`, `15 nodes (all but rpi11)`.

    The words are empty for a finding without a node.
    """

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
    """Name some of the nodes `everyone`, in few words."""
    if len(names) <= _NAMED_NODES:
        return ", ".join(names)
    excluded = [name for name in everyone if name not in names]
    if not excluded:
        return f"all {len(names)} nodes"
    if len(excluded) <= _LEFT_OUT_NODES:
        return f"{len(names)} nodes (all but {', '.join(excluded)})"
    if every_name:
        return ", ".join(names)
    return f"{len(names)} nodes ({names[0]}, ...)"
