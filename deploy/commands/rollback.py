"""`fab deploy rollback`: all nodes to one release, whatever ends the command on the way."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.logs import say
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import split_errors
from deploy.cluster.services import DegradedError, kept_tasks
from deploy.common.command_line import command, shell
from deploy.common.interrupts import waiting_for
from deploy.converge.code import run_script
from deploy.converge.coordinator import drain
from deploy.converge.recap import (
    Need,
    Rollback,
    Standing,
    UnfinishedRollback,
    goes_on,
    read_runs,
    runs_script,
    target,
)
from deploy.converge.serving import restart_service
from deploy.converge.systemd import batches, restart_on
from deploy.release.scripts import ListingError, installed_releases, list_releases, make_current
from deploy.render.units import SERVICE_UNIT, unit_name

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from deploy.cluster.cluster import ManagedCluster
    from deploy.cluster.fleet import Fleet

_SECONDS = 60.0

Roles = Mapping[str, Sequence["Task"]]
"""The roles kept on each node."""


def roll_back(cluster: "ManagedCluster", names: Sequence[str], serial: int, to: str | None) -> None:
    """Make one release current on these nodes and restart what they run, `serial` nodes at a time.

    Services restart one node after the other. The first that does not answer again ends the
    rollback, and the nodes after it stay as they are. The next call resumes an interrupted
    rollback. `to` is the release, where a person chose one. Raises DegradedError, UsageError.
    """
    with cluster.fleet() as fleet:
        run = _RollbackRun(cluster, fleet, names, to)
        try:
            for batch in batches(run.nodes_to_change(), serial):
                if not run.go_back_on(batch):
                    break
        except KeyboardInterrupt:
            say(f"interrupted; {run.state()}", error=True)
            raise
    run.end()


def _whole_key(beginning: str, releases: Collection[str]) -> str:
    """Return the release whose key begins so, as `status` shows it. Raises UsageError."""
    fitting = [key for key in releases if beginning and key.startswith(beginning)]
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError(f"--to {beginning}: expected the beginning of one of {', '.join(releases)}")


class _RollbackRun:
    """One call of `rollback`: how far each of its nodes is, noted for the next call."""

    def __init__(
        self, cluster: "ManagedCluster", fleet: "Fleet", names: Sequence[str], to: str | None
    ) -> None:
        """Look at the releases of the nodes and choose the one to go back to.

        Raises DegradedError where there is none.
        """
        self._inventory = cluster.inventory
        self._fleet = fleet
        self._names = names
        tasks = kept_tasks(cluster.inventory)
        self._roles: Roles = {name: [task for task in tasks if task.node == name] for name in names}
        self._note = UnfinishedRollback.of(cluster)
        self._failed: dict[str, ClusterError] = {}
        standings = self._standings()
        since = {
            version.key: version.unpacked
            for standing in standings.values()
            for version in standing.installed.releases
        }
        if to is not None and standings:
            to = _whole_key(to, since)
        self._to = self._target(standings, to)
        release = self._to.release
        self._needs = {name: standing.need(release) for name, standing in standings.items()}
        for name in self._that_need(Need.RELEASE):
            self._failed[name] = ClusterError(
                f"{name}: release {release}, to which the others go back, is not there: `fab deploy"
                f" start --limit {name}` from the checkout of that release brings it"
            )
        listing = ", ".join(sorted(since, key=since.__getitem__))
        say(f"going to release {release}; there, the oldest first: {listing} (`--to` takes one)")
        well = self._that_need(Need.NOTHING)
        for name in well:
            say(f"{name}: on release {release} already")
        pending = {*self._to.left, *names} - set(well)
        self._leave([node.name for node in cluster.inventory.nodes if node.name in pending])

    def nodes_to_change(self) -> list[str]:
        """Return the nodes that can go back and are not there yet."""
        return self._that_need(Need.FLIP, Need.RESTART)

    def go_back_on(self, batch: Sequence[str]) -> bool:
        """Take some nodes back at once; return False where a service does not answer again."""
        drain(self._inventory, self._fleet, [task for name in batch for task in self._roles[name]])
        with waiting_for(f"going back on {', '.join(batch)}"):
            errors = split_errors(self._fleet.each(self._back_on, batch))[1]
        self._failed |= errors
        moved = [name for name in batch if name not in self._failed]
        back, problems = _with_services(self._inventory, self._fleet, moved)
        self._failed |= problems
        for name in back:
            say(f"{name}: back on release {self._to.release}")
        self._leave([name for name in self._to.left if name not in back])
        return not problems

    def end(self) -> None:
        """Say what is left. Raises DegradedError where a node failed."""
        if self._failed:
            problems = [str(self._failed[name]) for name in self._names if name in self._failed]
            raise DegradedError("\n".join([*problems, self.state()]))
        if self._to.left:
            say(self.state())

    def state(self) -> str:
        """Return which nodes are there and which are not, and the commands that continue."""
        to = self._to
        moved = ", ".join(name for name in self._names if name not in to.left) or "no node"
        concerned = {*to.was, *to.left}
        again = f"deploy rollback --limit {','.join(to.left)}"
        if all(node.name in concerned for node in self._inventory.nodes):
            again = "deploy rollback"
        path = self._inventory.path
        return (
            f"on release {to.release}: {moved}; not or not yet: {', '.join(to.left)};"
            f" `{command(again, path)}` resumes with these,"
            f" `{command('deploy start', path)}` brings nodes to the checkout's own release"
        )

    def _standings(self) -> dict[str, Standing]:
        serving = self._inventory.service_nodes

        def standing_of(node: Connector) -> Standing:
            return _look_at_node(node, self._roles[node.name], node.name in serving)

        with waiting_for(f"looking at the releases of {len(self._names)} nodes"):
            standings, errors = split_errors(self._fleet.each(standing_of, self._names))
        self._failed |= errors
        return standings

    def _that_need(self, *needs: Need) -> list[str]:
        return [name for name, need in self._needs.items() if need in needs]

    def _target(self, standings: Mapping[str, Standing], to: str | None) -> Rollback:
        """Return `to`, else that of an interrupted rollback, else the one that was current before.

        Raises DegradedError where no node has one.
        """
        now = {name: standing.installed.current for name, standing in standings.items()}
        was = {name: current for name, current in now.items() if current is not None}
        if to is not None and standings:
            return Rollback(to, was)
        unfinished = self._note.read()
        if unfinished is not None and goes_on(unfinished, standings):
            say(
                f"resuming the interrupted rollback to release {unfinished.release} "
                "(`fab deploy start` or `push` ends it otherwise)"
            )
            return replace(unfinished, was={**was, **unfinished.was})
        (coordinator,) = self._inventory.of_role("coordinator")
        release = target(standings, coordinator.node)
        if release is not None:
            return Rollback(release, was)
        for name in standings:
            self._failed[name] = ClusterError(
                f"{name}: no earlier release is left to go back to: `fab deploy start` from the"
                " checkout you want"
            )
        raise DegradedError("\n".join(str(self._failed[name]) for name in self._names))

    def _leave(self, names: Sequence[str]) -> None:
        """Note which nodes are left, for the next call."""
        self._to = replace(self._to, left=tuple(names))
        self._note.write(self._to)

    def _back_on(self, node: Connector) -> None:
        if self._needs[node.name] is Need.FLIP:
            run_script(node, make_current(self._to.release), _SECONDS)
        if self._roles[node.name]:
            restart_on(node, self._roles[node.name])


def _with_services(
    inventory: "Inventory", fleet: "Fleet", names: Sequence[str]
) -> tuple[list[str], dict[str, ClusterError]]:
    """Restart the services of these nodes, one node after the other.

    Returns the nodes that are through, those without a service among them, and the error of the one
    whose service does not answer again; the ones after it are left.
    """
    serving = [name for name in names if name in inventory.service_nodes]
    through = [name for name in names if name not in serving]
    for name in serving:
        try:
            with waiting_for(f"restarting the service on {name}"):
                restart_service(inventory, fleet.nodes[name])
        except ClusterError as error:
            return through, {name: error}
        through.append(name)
    return through, {}


def _look_at_node(node: Connector, tasks: Sequence["Task"], serves: bool) -> Standing:
    listing = run_script(node, list_releases(), _SECONDS)
    units = [*(unit_name(task) for task in tasks), *([SERVICE_UNIT] if serves else [])]
    if units:
        runs = node.run(shell(runs_script(units)), root=True, deadline_seconds=_SECONDS).text
    else:
        runs = ""
    try:
        return Standing(installed_releases(listing), read_runs(runs, units))
    except ListingError as error:
        raise ClusterError(f"{node.name}: {error}") from error
