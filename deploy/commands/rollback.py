"""`fab deploy rollback`: all nodes to one release, whatever ends the command on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.logs.terminal import say
from deploy.cluster.connector import Connector
from deploy.cluster.selection import kept_tasks
from deploy.cluster.services import DegradedError
from deploy.common.command_line import command, shell
from deploy.common.waiting import waiting_for
from deploy.converge.draining import drain
from deploy.converge.rollback_plan import (
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
from deploy.release.history import ListingError, read
from deploy.release.scripts import RefusedError, list_releases, make_current, outcome
from deploy.render.units import SERVICE_UNIT, unit_name

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task
    from deploy.cluster.cluster import Cluster
    from deploy.cluster.fleet import Fleet

_SECONDS = 60.0

Roles = Mapping[str, Sequence["Task"]]
"""The roles kept on each node."""


def roll_back(cluster: "Cluster", names: Sequence[str], serial: int) -> None:
    """Make one release current on these nodes and restart what they run, `serial` nodes at a time.

    Services restart one node after the other. The first that does not answer again ends the rollback, and the nodes
    after it stay as they are. The next call resumes an interrupted rollback. Raises DegradedError.
    """
    serving = cluster.inventory.service_nodes
    kept = kept_tasks(cluster.inventory)
    roles = {name: [task for task in kept if task.node == name] for name in names}
    note = UnfinishedRollback.of(cluster)
    with cluster.fleet() as fleet:
        with waiting_for(f"looking at the releases of {len(names)} nodes"):
            found = fleet.each(lambda node: _look(node, roles[node.name], node.name in serving), names)
        standings = {name: one for name, one in found.items() if isinstance(one, Standing)}
        failed = {name: one for name, one in found.items() if isinstance(one, ClusterError)}
        to = _where_to(cluster, standings)
        if to is None:
            nothing = "no earlier release is left to go back to: `fab deploy start` from the checkout you want"
            failed |= {name: ClusterError(f"{name}: {nothing}") for name in standings}
            raise DegradedError("\n".join(str(failed[name]) for name in names))
        release = to.release
        needs = {name: standing.need(release) for name, standing in standings.items()}
        for name in [name for name, need in needs.items() if need is Need.RELEASE]:
            failed[name] = ClusterError(
                f"{name}: release {release}, to which the others go back, is not there: `fab deploy start --limit "
                f"{name}` from the checkout of that release brings it"
            )
        well = [name for name, need in needs.items() if need is Need.NOTHING]
        for name in well:
            say(f"{name}: on release {release} already")
        left = {*to.left, *names} - set(well)
        to = replace(to, left=tuple(node.name for node in cluster.inventory.nodes if node.name in left))
        note.write(to)

        def back_on(node: Connector) -> None:
            _back_on(node, release, needs[node.name], roles[node.name])

        try:
            for batch in batches([name for name, need in needs.items() if need in (Need.FLIP, Need.RESTART)], serial):
                drain(cluster.inventory, fleet, [task for name in batch for task in roles[name]])
                with waiting_for(f"going back on {', '.join(batch)}"):
                    results = fleet.each(back_on, batch)
                failed |= {name: result for name, result in results.items() if isinstance(result, ClusterError)}
                back, problem = _with_services(
                    cluster.inventory, fleet, [name for name in batch if name not in failed]
                )  # fmt: skip
                failed |= problem
                for name in back:
                    say(f"{name}: back on release {release}")
                to = replace(to, left=tuple(name for name in to.left if name not in back))
                note.write(to)
                if problem:
                    break
        except KeyboardInterrupt:
            say(f"interrupted; {_state(cluster, to, names)}", error=True)
            raise
    if failed:
        raise DegradedError(
            "\n".join([*(str(failed[name]) for name in names if name in failed), _state(cluster, to, names)])
        )
    if to.left:
        say(_state(cluster, to, names))


def _with_services(
    inventory: "Inventory", fleet: "Fleet", names: Sequence[str]
) -> tuple[list[str], dict[str, ClusterError]]:  # fmt: skip
    """The nodes that are through: their service, where they have one, answers again. And the one that is not."""
    through = [name for name in names if name not in inventory.service_nodes]
    for name in [name for name in names if name in inventory.service_nodes]:
        try:
            with waiting_for(f"restarting the service on {name}"):
                restart_service(inventory, fleet.nodes[name])
        except ClusterError as error:
            return through, {name: error}
        through.append(name)
    return through, {}


def _look(node: Connector, tasks: Sequence["Task"], serves: bool) -> Standing:
    listing = node.run(shell(list_releases()), root=True, deadline_seconds=_SECONDS)
    units = [*(unit_name(task) for task in tasks), *([SERVICE_UNIT] if serves else [])]
    runs = node.run(shell(runs_script(units)), root=True, deadline_seconds=_SECONDS).text if units else ""
    try:
        outcome(listing.return_code, listing.text, listing.stderr)
        return Standing(read(listing.text), read_runs(runs, units))
    except (RefusedError, ListingError) as error:
        raise ClusterError(f"{node.name}: {error}") from error


def _where_to(cluster: "Cluster", standings: Mapping[str, Standing]) -> Rollback | None:
    """The target: that of an interrupted rollback, else the release that was current before."""
    now = {name: one.installed.current for name, one in standings.items()}
    was = {name: current for name, current in now.items() if current is not None}
    unfinished = UnfinishedRollback.of(cluster).read()
    if unfinished is not None and goes_on(unfinished, standings):
        say(
            f"resuming the interrupted rollback to release {unfinished.release} "
            "(`fab deploy start` or `push` ends it otherwise)"
        )
        return replace(unfinished, was={**was, **unfinished.was})
    (coordinator,) = cluster.inventory.of_role("coordinator")
    release = target(standings, coordinator.node)
    return None if release is None else Rollback(release, was)


def _back_on(node: Connector, release: str, need: Need, tasks: Sequence["Task"]) -> None:
    if need is Need.FLIP:
        flipped = node.run(shell(make_current(release)), root=True, deadline_seconds=_SECONDS)
        try:
            outcome(flipped.return_code, flipped.text, flipped.stderr)
        except RefusedError as error:
            raise ClusterError(f"{node.name}: {error}") from error
    if tasks:
        restart_on(node, tasks)


def _state(cluster: "Cluster", to: Rollback, names: Sequence[str]) -> str:
    there = ", ".join(name for name in names if name not in to.left) or "no node"
    concerned = {*to.was, *to.left}
    all_of_them = all(node.name in concerned for node in cluster.inventory.nodes)
    again = "deploy rollback" if all_of_them else f"deploy rollback --limit {','.join(to.left)}"
    return (
        f"on release {to.release}: {there}; not or not yet: {', '.join(to.left)}; "
        f"`{command(again, cluster.inventory.path)}` resumes with these, "
        f"`{command('deploy start', cluster.inventory.path)}` brings nodes to the checkout's own release"
    )
