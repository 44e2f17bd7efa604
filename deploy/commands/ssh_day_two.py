"""`trust`, `status`, `stop`, `restart`, `reset` and `ssh` for `connection: ssh`."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say, say_json, visible
from deploy.cluster.connection import NodeConnection
from deploy.cluster.host_keys import PinnedKeys, Sighting, ask_for_key
from deploy.cluster.ssh_cluster import SshCluster
from deploy.commands import watching
from deploy.commands.drain import drain
from deploy.commands.edge import DegradedError
from deploy.common.command_line import shell
from deploy.common.waiting import waiting_for
from deploy.converge.cluster_view import cluster_status
from deploy.converge.deployment import survey
from deploy.converge.desired import Wish
from deploy.converge.node_table import node_rows
from deploy.converge.reset import Traces, reset_script
from deploy.converge.rolling import batches, interrupt_script, restart_script, stop_script
from deploy.render.roles import unit_name
from deploy.terminal.deployment_console import node_parts, show_nodes
from deploy.terminal.job_progress import asked_on_node, progress_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cluster.inventory import Task

STOP_SECONDS = 120.0
RESTART_SECONDS = 400.0
RESET_SECONDS = 900.0


def trust(cluster: SshCluster, limit: Sequence[str], yes: bool) -> None:
    """Show the fingerprints that the nodes have now and, when a person agrees, pin them."""
    pinned = PinnedKeys(cluster.known_hosts)
    names = cluster.chosen_nodes(limit)
    sightings: list[Sighting] = []
    with cluster.fleet() as fleet:
        jump = fleet.jump
        if jump is not None:
            _pin(pinned, [pinned.standing(jump.address, ask_for_key(jump.address))], yes)
        through = None if jump is None else jump.open()

        def sight(node: NodeConnection) -> Sighting:
            return pinned.standing(node.address, ask_for_key(node.address, through))

        found = fleet.each(sight, names)
    silent = [result for result in found.values() if isinstance(result, ClusterError)]
    sightings = [result for result in found.values() if isinstance(result, Sighting)]
    _pin(pinned, sightings, yes)
    for error in silent:
        say(error, error=True)
    if silent:
        raise Exit(None, ExitCode.DEGRADED)


def _pin(pinned: PinnedKeys, sightings: list[Sighting], yes: bool) -> None:
    for sighting in sightings:
        say(sighting.line)
    other = [sighting for sighting in sightings if sighting.standing != "known"]
    if not sightings:
        return
    if not other:
        say(f"all {len(sightings)} are pinned in {pinned.path}")
        return
    if not yes and not _agrees("compare them with `ssh-keygen -lf` of the key on each node; pin them?"):
        raise UsageError("nothing was pinned: `--yes` pins without a question")
    pinned.record(other)
    say(f"pinned {len(other)} in {pinned.path}")


def _agrees(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(visible(f"{question} [y/N] ")).strip().lower() in ("y", "yes")


def status(
    cluster: SshCluster, limit: Sequence[str], for_programs: bool, every_seconds: float | None = None
) -> None:  # fmt: skip
    """One row a node: roles, ports, mounts, memory, temperature, release. Exit code 3 unless all is well."""
    wish = Wish(cluster.inventory, cluster.release)
    if every_seconds is not None:
        _watch(cluster, wish, limit, every_seconds)
        return
    with cluster.fleet() as fleet, waiting_for("looking at the nodes"):
        seen = survey(fleet, wish, cluster.chosen_nodes(limit))
    roles = cluster_status(cluster.inventory, seen)
    rows = node_rows(wish, seen)
    if for_programs:
        say_json({**roles.to_json(), "nodes": [row.to_json() for row in rows]})
    else:
        show_nodes(rows)
    if any(not row.well for row in rows):
        raise Exit(None, ExitCode.DEGRADED)


def _watch(cluster: SshCluster, wish: Wish, limit: Sequence[str], every_seconds: float) -> None:
    """The same, with how far a job is, over connections that stay open."""
    (coordinator,) = cluster.inventory.of_role("coordinator")
    with cluster.fleet() as fleet:

        def look() -> "list[RenderableType]":
            rows = node_rows(wish, survey(fleet, wish, cluster.chosen_nodes(limit)))
            try:
                words, script = asked_on_node(coordinator.metrics_address)
                exported = fleet.nodes[coordinator.node].run(words, stdin=script, root=True).text
            except ClusterError:  # its row says so
                exported = ""
            return [*node_parts(rows, watching.columns()), progress_line(exported) or "no job runs"]

        watching.watch(every_seconds, look)


def stop(cluster: SshCluster, limit: Sequence[str]) -> None:
    """Interrupt a job, which takes what it has with all roles still there, then stop the roles.

    They do not start at boot either.
    """
    names = cluster.chosen_nodes(limit)
    (coordinator,) = cluster.inventory.of_role("coordinator")
    with cluster.fleet() as fleet:
        if coordinator.node in names:
            with waiting_for("stopping the job, if one runs"):
                fleet.each(_interrupt_on, [coordinator.node])  # what is wrong with that node is told below
        with waiting_for(f"stopping the roles of {len(names)} nodes"):
            results = fleet.each(_stop_on, names)
    stopped = {name: result for name, result in results.items() if not isinstance(result, ClusterError)}
    count = sum(len(units) for units in stopped.values())
    if stopped:
        say(f"stopped {count} roles on {len(stopped)} nodes" if count else "nothing was running")
    if count and cluster.inventory.monitor_node is not None:
        say(f"the monitor on {cluster.inventory.monitor_node} goes on, and says that they are down")
    _told(results)


def _interrupt_on(node: NodeConnection) -> None:
    node.run(shell(interrupt_script()), root=True, deadline_seconds=STOP_SECONDS)


def _stop_on(node: NodeConnection) -> list[str]:
    done = node.run(shell(stop_script()), root=True, deadline_seconds=STOP_SECONDS)
    if not done.ok:
        raise ClusterError(f"{node.name}: not stopped: {' | '.join(done.last_lines[-3:])}; {_by_hand(node)}")
    return done.text.split()


def restart(cluster: SshCluster, roles: Sequence[str], nodes: Sequence[str], serial: int) -> None:
    """Restart roles, `serial` nodes at a time (0: all at once); a batch that does not come up ends it.

    The workers of a batch are drained before, if a job runs and others are left to go on with it.
    """
    from deploy.cluster.selection import select

    kept = [task for task in cluster.inventory.tasks() if task.role in ("ps", "worker")]
    tasks = select(kept, roles, nodes)
    of_node: dict[str, list[Task]] = {}
    for task in tasks:
        of_node.setdefault(task.node, []).append(task)
    with cluster.fleet() as fleet:
        for batch in batches(list(of_node), serial):
            drain(cluster.inventory, fleet, [task for name in batch for task in of_node[name]])
            with waiting_for(f"restarting on {', '.join(batch)}"):
                results = fleet.each(lambda node: restart_on(node, of_node[node.name]), batch)
            failed = [str(result) for result in results.values() if isinstance(result, ClusterError)]
            if failed:
                raise DegradedError("\n".join(failed))
            say(f"restarted on {', '.join(batch)}")


def restart_on(node: NodeConnection, tasks: Sequence["Task"]) -> None:
    """Restart the units of these roles and wait until they are up. Raises ClusterError."""
    units = [unit_name(task) for task in tasks]
    done = node.run(shell(restart_script(units)), root=True, deadline_seconds=RESTART_SECONDS)
    if not done.ok:
        raise ClusterError(f"{node.name}: not restarted: {' | '.join(done.last_lines[-3:])}; {_by_hand(node)}")


def reset(cluster: SshCluster, limit: Sequence[str], yes: bool, data: bool) -> None:
    """Remove everything that was ever installed; the shared folder and the runs stay unless `data`."""
    names = cluster.chosen_nodes(limit)
    what = "everything of pscluster, packages that it added too" + (", and the shared data and runs" if data else "")
    if not yes and not _agrees(f"remove {what} from {len(names)} nodes?"):
        raise UsageError("nothing was removed: `--yes` removes without a question")
    traces = Traces.of(cluster.inventory, data)
    server = traces.folders.server
    with cluster.fleet() as fleet:
        # The clients first: a mount whose server is gone cannot be taken down in peace.
        results: dict[str, str | ClusterError] = {}
        for batch in ([name for name in names if name != server], [name for name in names if name == server]):
            with waiting_for(f"removing everything from {len(batch)} nodes"):
                results |= fleet.each(lambda node: _reset_on(node, traces), batch)
    cluster.forget_nodes([name for name, result in results.items() if isinstance(result, str)])
    for name, result in results.items():
        if isinstance(result, str):
            say(f"{name}: {result}")
    _told(results)


def _reset_on(node: NodeConnection, traces: Traces) -> str:
    done = node.run(shell(reset_script(traces, node.name)), root=True, deadline_seconds=RESET_SECONDS)
    if not done.ok:
        raise ClusterError(f"{node.name}: not reset: {' | '.join(done.last_lines[-3:])}; {_by_hand(node)}")
    return " ".join(done.text.split())


def _by_hand(node: NodeConnection) -> str:
    return f"`fab deploy logs --node {node.name}` says more, `fab deploy ssh --node {node.name}` looks at it by hand"


def ssh(cluster: SshCluster, nodes: Sequence[str], words: str | None) -> None:
    """Become the system's `ssh` to one node, with the pinned keys."""
    if len(nodes) != 1:
        raise UsageError("expected one --node NAME")
    addresses = {node.address.name: node.address for node in cluster.fleet().nodes.values()}
    if nodes[0] not in addresses:
        raise UsageError(f"--node {nodes[0]}: expected one of {', '.join(addresses)}")
    address = addresses[nodes[0]]
    options = [f"UserKnownHostsFile={_quoted(cluster.known_hosts)}", "StrictHostKeyChecking=yes"]
    jump = cluster.inventory.ssh.jump
    if jump is not None:
        # OpenSSH gives a jump host none of these options: it looks into the user's own known_hosts there.
        options.append(f"ProxyJump={jump.user or cluster.inventory.ssh.user}@{jump.host}:{jump.port}")
    command = ["ssh", *(word for option in options for word in ("-o", option)), "-p", str(address.port)]
    if address.key is not None:
        command += ["-i", str(Path(address.key).expanduser())]
    command += [f"{address.user}@{address.host}", *([words] if words else [])]
    sys.stdout.flush()
    os.execvp("ssh", command)


def _quoted(path: Path) -> str:
    """One file for an option of OpenSSH that takes several, in which %h and the like stand for something."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _told(results: Mapping[str, object]) -> None:
    """Say which nodes could not, and end degraded."""
    errors = [str(result) for result in results.values() if isinstance(result, ClusterError)]
    if errors:
        raise DegradedError("\n".join(errors))
