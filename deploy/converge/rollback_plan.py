"""The release that a rollback takes all nodes to, and the note of one that is under way."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from core.control.own_state import make
from core.ground.files import atomic_write, read_json
from deploy.common.command_line import filled
from deploy.release.history import Installed, previous
from deploy.release.scripts import checked

if TYPE_CHECKING:
    from deploy.cluster.cluster import ManagedCluster


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
        """None without a note, or for a damaged one."""
        try:
            kept: Any = read_json(self._path)
            was = {str(node): str(release) for node, release in kept["was"].items()}
            return Rollback(
                checked(str(kept["release"])), was, tuple(str(node) for node in kept["left"])
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
        make(self._path.parent)
        atomic_write(self._path, json.dumps(asdict(rollback)).encode() + b"\n")

    def forget(self) -> None:
        """The nodes go to another release."""
        self._path.unlink(missing_ok=True)


class Need(StrEnum):
    """What a node needs to have a release and run it."""

    NOTHING = "nothing"
    RESTART = "restart"
    """A restart of its roles: the release is current, and not every one of them runs it."""
    FLIP = "flip"
    """And the restart."""
    RELEASE = "release"
    """It is not there: nothing can be done."""


@dataclass(frozen=True)
class Standing:
    """What is on a node, and the release that each role runs, None for one that does not run."""

    installed: Installed
    runs: Mapping[str, str | None]

    def need(self, release: str) -> Need:
        """What it needs."""
        if self.installed.current == release:
            if all(one == release for one in self.runs.values()):
                return Need.NOTHING
            return Need.RESTART
        there = {
            one.key
            for one in self.installed.releases
            if one.environment in self.installed.environments
        }
        if release in there:
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
    own = before.get(leading)
    if own is not None and own.key in among:
        return own.key
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
    found: dict[str, str | None] = dict.fromkeys(units)
    for line in text.splitlines():
        match line.split():
            case ["unit", name, "active", folder] if name in found:
                found[name] = folder.rpartition("/")[2]
    return found
