"""What became of a deployment: node by phase, with seconds, changes and failures.

For a rollback it also has the release that all nodes go to, and the note while that is under way.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from core.control.own_state import make_private
from core.ground.files import atomic_write, read_json
from deploy.common.command_line import filled
from deploy.converge.apply import StepFailure
from deploy.release.scripts import Installed, checked_key, previous

if TYPE_CHECKING:
    from deploy.cluster.cluster import ManagedCluster


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


@dataclass(frozen=True)
class Rollback:
    """A rollback to `release`.

    `was` is the release each node had at first; `left` are nodes not known to be there.
    """

    release: str
    was: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


class UnfinishedRollback:
    """The note of a rollback under way, on the operator's machine.

    It exists from before the first node goes back until every node has.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, cluster: "ManagedCluster") -> Self:
        """The note of a cluster."""
        return cls(cluster.folder.path / "rollback.json")

    def read(self) -> Rollback | None:
        """Return the note; None without one, or for a damaged one."""
        try:
            note: Any = read_json(self._path)
            was = {str(node): str(release) for node, release in note["was"].items()}
            return Rollback(
                checked_key(str(note["release"])), was, tuple(str(node) for node in note["left"])
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def write(self, rollback: Rollback) -> None:
        """Keep it; a rollback with no node left is complete, and its note goes.

        Raises ClusterError.
        """
        if not rollback.left:
            self.forget()
            return
        make_private(self._path.parent)
        atomic_write(self._path, json.dumps(asdict(rollback)).encode() + b"\n")

    def forget(self) -> None:
        """Remove the note: the nodes go to another release."""
        self._path.unlink(missing_ok=True)


class Need(StrEnum):
    """What a node needs to have a release and run it."""

    NOTHING = "nothing"
    RESTART = "restart"
    """A restart of its roles: the release is current, and not every one of them runs it."""
    FLIP = "flip"
    """The release made current, and the restart."""
    RELEASE = "release"
    """A release that is not there: nothing can be done."""


@dataclass(frozen=True)
class Standing:
    """What is on a node, and the release that each role runs, None for one that does not run."""

    installed: Installed
    runs: Mapping[str, str | None]

    def need(self, release: str) -> Need:
        """Return what it needs."""
        if self.installed.current == release:
            if all(running == release for running in self.runs.values()):
                return Need.NOTHING
            return Need.RESTART
        complete_releases = {
            candidate.key
            for candidate in self.installed.releases
            if candidate.environment in self.installed.environments
        }
        if release in complete_releases:
            return Need.FLIP
        return Need.RELEASE


def target(standings: Mapping[str, Standing], leading: str) -> str | None:
    """Return the release that most nodes had before the one they have.

    Between equals it is that of node `leading`.

    Nodes go back together: one that missed a deployment had another one before. None when no node
    has an earlier one.
    """
    before = {name: previous(standing.installed) for name, standing in standings.items()}
    votes = Counter(release.key for release in before.values() if release is not None)
    most = max(votes.values(), default=0)
    among = [key for key, count in votes.items() if count == most]
    leading_release = before.get(leading)
    if leading_release is not None and leading_release.key in among:
        return leading_release.key
    return next(iter(among), None)


def goes_on(unfinished: Rollback, standings: Mapping[str, Standing]) -> bool:
    """Whether no node that it concerned was brought to a third release since.

    Another machine's `start` may do so.
    """
    return all(
        standings[node].installed.current in (was, unfinished.release, None)
        for node, was in unfinished.was.items()
        if node in standings
    )


def runs_script(units: Sequence[str]) -> str:
    """Prints `unit NAME STATE FOLDER` for each unit, FOLDER being where its process works."""
    return filled("converge/runs.sh", units=[*units])


def read_runs(text: str, units: Sequence[str]) -> dict[str, str | None]:
    """Return the release that each unit's process was started from, None for one that is not up."""
    releases: dict[str, str | None] = dict.fromkeys(units)
    for line in text.splitlines():
        match line.split():
            case ["unit", name, "active", folder] if name in releases:
                releases[name] = folder.rpartition("/")[2]
    return releases
