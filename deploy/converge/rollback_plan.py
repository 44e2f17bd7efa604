"""The one release that a rollback takes all nodes to, what each needs for it, and the note of one under way."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cluster.atomic_write import atomic_write
from deploy.common.texts import filled
from deploy.release.history import Installed, previous
from deploy.release.scripts import checked

if TYPE_CHECKING:
    from deploy.cluster.cluster import Cluster


@dataclass(frozen=True)
class Rollback:
    """`release` is where it goes; `was` the release each node had at first; `left` are those not known to be there."""

    release: str
    was: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


class UnfinishedRollback:
    """The note on the operator's machine: it exists from before the first node goes back until every node has."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, cluster: "Cluster") -> Self:
        """The note of a cluster."""
        return cls(cluster.folder.path / "rollback.json")

    def read(self) -> Rollback | None:
        """None without a note, or for a damaged one."""
        try:
            kept: Any = json.loads(self._path.read_text(encoding="utf-8"))
            was = {str(node): str(release) for node, release in kept["was"].items()}
            return Rollback(checked(str(kept["release"])), was, tuple(str(node) for node in kept["left"]))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def write(self, rollback: Rollback) -> None:
        """Keep it; a rollback with no node left is complete, and its note goes. Raises ClusterError."""
        if not rollback.left:
            self.forget()
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps(asdict(rollback)).encode() + b"\n")

    def forget(self) -> None:
        """The nodes go to another release."""
        self._path.unlink(missing_ok=True)


class Need(StrEnum):
    """What a node needs to have a release and run it."""

    NOTHING = "nothing"
    RESTART = "restart"
    """Of its roles: the release is current, and not every one of them runs it."""
    FLIP = "flip"
    """And the restart."""
    RELEASE = "release"
    """It is not there: nothing can be done."""


@dataclass(frozen=True)
class Standing:
    """What is on a node, and the release that each of its roles runs, None for one that does not run."""

    installed: Installed
    runs: Mapping[str, str | None]

    def need(self, release: str) -> Need:
        """What it needs."""
        if self.installed.current == release:
            return Need.NOTHING if all(one == release for one in self.runs.values()) else Need.RESTART
        there = {one.key for one in self.installed.releases if one.environment in self.installed.environments}
        return Need.FLIP if release in there else Need.RELEASE


def target(standings: Mapping[str, Standing], leading: str) -> str | None:
    """The release that most nodes had before the one they have; between equals the one of node `leading`.

    Nodes go back together: one that missed a deployment had another one before. None when no node has an earlier one.
    """
    before = {name: previous(standing.installed) for name, standing in standings.items()}
    votes = Counter(release.key for release in before.values() if release is not None)
    most = max(votes.values(), default=0)
    among = [key for key, count in votes.items() if count == most]
    own = before.get(leading)
    return own.key if own is not None and own.key in among else next(iter(among), None)


def goes_on(unfinished: Rollback, standings: Mapping[str, Standing]) -> bool:
    """Whether no node that it concerned has been brought to a third release since, by another machine's `start`."""
    return all(
        standings[node].installed.current in (was, unfinished.release, None)
        for node, was in unfinished.was.items()
        if node in standings
    )


def runs_script(units: Sequence[str]) -> str:
    """Prints `unit NAME STATE FOLDER` for each unit, FOLDER being where its process works."""
    return filled("converge/runs.sh", units=[*units])


def read_runs(text: str, units: Sequence[str]) -> dict[str, str | None]:
    """The release that the process of each of `units` was started from, None for one that is not up."""
    found: dict[str, str | None] = dict.fromkeys(units)
    for line in text.splitlines():
        match line.split():
            case ["unit", name, "active", folder] if name in found:
                found[name] = folder.rpartition("/")[2]
    return found
