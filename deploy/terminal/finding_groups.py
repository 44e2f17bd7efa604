"""Findings of many nodes, each said once. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.converge.check import Finding, Level

_NAMED = 3
"""More nodes than these are counted; those of a problem are all named, since each has to be visited."""
_LEFT_OUT = 2


@dataclass(frozen=True)
class FindingGroup:
    """One thing found, and on which nodes: `all 16 nodes`, `15 nodes (all but rpi11)`, empty without nodes."""

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
    if len(names) <= _NAMED:
        return ", ".join(names)
    others = [name for name in everyone if name not in names]
    if not others:
        return f"all {len(names)} nodes"
    if len(others) <= _LEFT_OUT:
        return f"{len(names)} nodes (all but {', '.join(others)})"
    if every_name:
        return ", ".join(names)
    return f"{len(names)} nodes ({names[0]}, ...)"
