"""Which release a rollback goes to, one for all nodes, and what each of them needs for it. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from deploy.common.command_line import quoted
from deploy.release.history import Installed, previous

if TYPE_CHECKING:
    from deploy.converge.unfinished_rollback import Rollback


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


def goes_on(unfinished: "Rollback", standings: Mapping[str, Standing]) -> bool:
    """Whether no node that it concerned has been brought to a third release since, by another machine's `start`."""
    return all(
        standings[node].installed.current in (was, unfinished.release, None)
        for node, was in unfinished.was.items()
        if node in standings
    )


def runs_script(units: Sequence[str]) -> str:
    """Prints `unit NAME STATE FOLDER` for each unit, FOLDER being where its process works."""
    return f"""\
for unit in {quoted(*units)}; do
    pid=$(systemctl show --value -p MainPID "$unit")
    echo "unit $unit $(systemctl is-active "$unit") $(readlink "/proc/${{pid:-0}}/cwd")"
done
"""


def read_runs(text: str, units: Sequence[str]) -> dict[str, str | None]:
    """The release that the process of each of `units` was started from, None for one that is not up."""
    found: dict[str, str | None] = dict.fromkeys(units)
    for line in text.splitlines():
        match line.split():
            case ["unit", name, "active", folder] if name in found:
                found[name] = folder.rpartition("/")[2]
    return found
