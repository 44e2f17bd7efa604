"""The views of a deployment: its plans, its progress, its recap, its nodes."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.logs.terminal import is_animated, say
from deploy.converge.apply import StepFailure
from deploy.converge.change import Change
from deploy.converge.node_table import NodeRow
from deploy.converge.recap import Recap
from deploy.terminal.console import console, duration, lean_table

if TYPE_CHECKING:
    from rich.console import RenderableType

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


@contextmanager
def progress_of_deployment() -> Iterator[Callable[[str, str], None]]:
    """Show each event: a spinner with the last one on a terminal, else one line an event."""
    if is_animated(sys.stdout):
        from cluster.logs.screen import spinner

        with spinner("connecting") as update:
            yield lambda node, line: update(f"{node}: {line}" if node else line)
    else:
        yield lambda node, line: say(f"{node}: {line}" if node else line)


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
