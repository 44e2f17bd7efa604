"""The findings of a check at the terminal: one line each, with the nodes that share it."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.converge.check import Finding, Level
from deploy.terminal.console import console

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
