"""What became of a deployment: node by phase, with seconds, changes and failures.

Pure but for being written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.control.own_state import make_private
from core.ground.files import atomic_write, read_json
from deploy.converge.apply import StepFailure


@dataclass(frozen=True)
class NodePhase:
    """One node in one phase."""

    changed: int
    seconds: float


@dataclass
class Recap:
    """Grows while a deployment runs."""

    action: str
    cluster: str
    nodes: tuple[str, ...]
    chosen: tuple[str, ...] = ()
    """The nodes that were asked for; `nodes` may have the storage server besides. Empty: all of
    `nodes`."""
    complete: bool = False
    """Whether every phase ran; a retry of an incomplete one takes all of `chosen`."""
    phases: list[str] = field(default_factory=list)
    cells: dict[tuple[str, str], NodePhase] = field(default_factory=dict)
    failures: dict[str, StepFailure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    addresses: tuple[str, ...] = ()
    """Lines about names, and about nodes that the others do not let in: they are no failure."""
    seconds: float = 0.0

    @property
    def changed(self) -> int:
        """Changes carried out on all nodes."""
        return sum(cell.changed for cell in self.cells.values())

    @property
    def failed(self) -> tuple[str, ...]:
        """Nodes that left the run."""
        return tuple(node for node in self.nodes if node in self.failures)

    def add(self, node: str, phase: str, changed: int, seconds: float) -> None:
        """Add a node's part of a phase."""
        if phase not in self.phases:
            self.phases.append(phase)
        before = self.cells.get((node, phase), NodePhase(0, 0.0))
        self.cells[node, phase] = NodePhase(before.changed + changed, before.seconds + seconds)

    def state(self, node: str) -> str:
        """`failed`, `changed` or `ok`."""
        if node in self.failures:
            return "failed"
        if any(cell.changed for (name, _), cell in self.cells.items() if name == node):
            return "changed"
        return "ok"

    def rows(self) -> Sequence[tuple[str, ...]]:
        """Return a row for each node: name, one cell for each phase, result."""
        table = []
        for node in self.nodes:
            cells = []
            for phase in self.phases:
                cell = self.cells.get((node, phase))
                failed = node in self.failures and self.failures[node].phase == phase
                if cell is None:
                    text = "-"
                else:
                    text = f"{cell.changed or 'ok'} {cell.seconds:.1f} s"
                cells.append("failed" if failed else text)
            table.append((node, *cells, self.state(node)))
        return table

    def summary(self) -> str:
        """`16 nodes: 3 changed, 1 failed, 42 changes in 81 s`."""
        states = [self.state(node) for node in self.nodes]
        counts = [
            f"{states.count(state)} {state}"
            for state in ("ok", "changed", "failed")
            if state in states
        ]
        return (
            f"{len(self.nodes)} nodes: {', '.join(counts)}; {self.changed} changed in"
            f" {self.seconds:.0f} s"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "action": self.action,
            "cluster": self.cluster,
            "complete": self.complete,
            "chosen": list(self.chosen or self.nodes),
            "changed": self.changed,
            "seconds": round(self.seconds, 3),
            "notes": self.notes,
            "addresses": list(self.addresses),
            "nodes": {
                node: {
                    "state": self.state(node),
                    "phases": {
                        phase: {"changed": cell.changed, "seconds": round(cell.seconds, 3)}
                        for (name, phase), cell in self.cells.items()
                        if name == node
                    },
                    "failure": self.failures[node].to_json() if node in self.failures else None,
                }
                for node in self.nodes
            },
        }

    def write(self, folder: Path, name: str) -> Path:
        """Keep it as `folder/name.json`; the path."""
        make_private(folder)
        path = folder / f"{name}.json"
        atomic_write(path, json.dumps(self.to_json(), indent=1).encode() + b"\n")
        return path


@dataclass(frozen=True)
class Again:
    """The nodes that a retry takes, and whether the last deployment was cut short."""

    nodes: tuple[str, ...] = ()
    cut_short: bool = False


def to_do_again(folder: Path) -> Again:
    """Return what the newest recap of `folder` leaves to a retry.

    These are all its nodes when it was cut short, else those that failed; no node without a
    readable recap.
    """
    newest = max(folder.glob("*.json"), default=None, key=lambda path: path.name)
    if newest is None:
        return Again()
    try:
        recap: Mapping[str, Any] = read_json(newest)
        nodes: Mapping[str, Mapping[str, Any]] = recap["nodes"]
        failed = tuple(name for name, node in nodes.items() if node.get("state") == "failed")
        # Recaps of earlier versions have neither key; whatever ended one of them early left a note.
        if recap.get("complete", not recap.get("notes")):
            return Again(failed)
        return Again(tuple(str(name) for name in recap.get("chosen", nodes)), cut_short=True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return Again()
