"""The actions of `fab deploy` that only machines have."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say, visible
from deploy.cluster.selection import select_nodes
from deploy.cluster.services import DegradedError
from deploy.commands.edge import takes
from deploy.commands.flags import Flags, whole_number
from deploy.commands.opened import run_phases
from deploy.commands.opening import open_cluster, open_inventory
from deploy.common.waiting import waiting_for
from deploy.jobs.request import needs_data

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.connector import Connector
    from deploy.cluster.login import PinnedKeys, Sighting

RESET_SECONDS = 900.0


@takes("inventory set_ limit")
def push(flags: Flags) -> None:
    """Bring environment and code onto the nodes, without restarting anything."""
    from deploy.converge.deployment import PUSH_PHASES

    opened = open_cluster(flags).for_machines("push")
    run_phases(opened, "push", flags.limit, PUSH_PHASES, with_data=False)


@takes("inventory set_ limit")
def storage(flags: Flags) -> None:
    """Set up the shared folder on its server and on the nodes, with the prepared recordings in it."""
    from deploy.converge.deployment import STORAGE_PHASES

    opened = open_cluster(flags).for_machines("storage")
    with_data = any(map(needs_data, opened.inventory.jobs.order))
    run_phases(opened, "storage", flags.limit, STORAGE_PHASES, with_data=with_data)


@takes("inventory set_ out")
def monitor(flags: Flags) -> None:
    """Watch the cluster with a Prometheus of its own, or with --out write the files for one that exists."""
    if flags.out is None:
        opened = open_cluster(flags)
        opened.monitor(opened)
        return
    # Files are for another Prometheus: this machine may have none of the cluster's addresses.
    inventory = open_inventory(flags, as_written=True)
    from deploy.monitor.files import all_files, write

    folder, files = Path(flags.out), all_files(inventory)
    written = write(folder, files)
    say(f"{len(files)} files in {folder}, {len(written)} new or changed; docs/monitoring.md says what reads them")


@takes("inventory set_ limit serial")
def rollback(flags: Flags) -> None:
    """Go back to the release that was current before, and restart roles and services from it.

    All nodes go to one release. Workers are drained and services follow one another as by `restart`. The next call
    resumes an interrupted rollback.
    """
    count = whole_number("--serial", flags.serial, 0, 1024)
    cluster = open_cluster(flags).for_machines("rollback").cluster
    from deploy.commands.rollback import roll_back

    roll_back(cluster, select_nodes(cluster.inventory, flags.limit), count)


@takes("inventory set_ limit yes with_data")
def reset(flags: Flags) -> None:
    """Remove everything that was ever installed on the nodes; data and runs only with --with-data. Asks first."""
    from deploy.cluster.places import shared_folders

    opened = open_cluster(flags).for_machines("reset")
    names = select_nodes(opened.inventory, flags.limit)
    what = "everything of pscluster, packages that it added too"
    what += ", and the shared data and runs" if flags.with_data else ""
    if not flags.yes and not _agrees(f"remove {what} from {len(names)} nodes?"):
        raise UsageError("nothing was removed: `--yes` removes without a question")
    server = shared_folders(opened.inventory).server
    with opened.cluster.fleet() as fleet:
        # The clients first: a mount whose server is gone cannot be taken down in peace.
        results: dict[str, str | ClusterError] = {}
        for batch in ([name for name in names if name != server], [name for name in names if name == server]):
            with waiting_for(f"removing everything from {len(batch)} nodes"):
                results |= fleet.each(lambda node: _reset_on(node, opened.inventory, flags.with_data), batch)
    opened.cluster.forget_nodes([name for name, result in results.items() if isinstance(result, str)])
    for name, result in results.items():
        if isinstance(result, str):
            say(f"{name}: {result}")
    errors = [str(result) for result in results.values() if isinstance(result, ClusterError)]
    if errors:
        raise DegradedError("\n".join(errors))


def _reset_on(node: "Connector", inventory: "Inventory", with_data: bool) -> str:
    from deploy.common.command_line import shell
    from deploy.converge.subjects import reset_script
    from deploy.converge.systemd import by_hand

    script = reset_script(inventory, node.name, data=with_data)
    done = node.run(shell(script), root=True, deadline_seconds=RESET_SECONDS)
    if not done.ok:
        raise ClusterError(f"{node.name}: not reset: {' | '.join(done.last_lines[-3:])}; {by_hand(node)}")
    return " ".join(done.text.split())


@takes("inventory set_ limit yes")
def trust(flags: Flags) -> None:
    """Show the fingerprints of the nodes' host keys and pin them. Asks first."""
    opened = open_cluster(flags).for_machines("trust")
    from deploy.cluster.login import PinnedKeys, Sighting, addresses, ask_for_key

    pinned = PinnedKeys(opened.cluster.known_hosts)
    names = select_nodes(opened.inventory, flags.limit)
    address_of = {address.name: address for address in addresses(opened.inventory)}
    with opened.cluster.fleet() as fleet:
        jump = fleet.jump
        if jump is not None:
            _pin(pinned, [pinned.standing(jump.address, ask_for_key(jump.address))], flags.yes)
        through = None if jump is None else jump.open()

        def sight(node: "Connector") -> Sighting:
            address = address_of[node.name]
            return pinned.standing(address, ask_for_key(address, through))

        found = fleet.each(sight, names)
    silent = [result for result in found.values() if isinstance(result, ClusterError)]
    _pin(pinned, [result for result in found.values() if isinstance(result, Sighting)], flags.yes)
    for error in silent:
        say(error, error=True)
    if silent:
        raise Exit(None, ExitCode.DEGRADED)


def _pin(pinned: "PinnedKeys", sightings: "list[Sighting]", yes: bool) -> None:
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


@takes("inventory set_ node run_command")
def ssh(flags: Flags) -> None:
    """A shell on one node (--node NAME), or one command there."""
    opened = open_cluster(flags).for_machines("ssh")
    from deploy.cluster.login import addresses

    if len(flags.node) != 1:
        raise UsageError("expected one --node NAME")
    (name,) = flags.node
    address_of = {address.name: address for address in addresses(opened.inventory)}
    if name not in address_of:
        raise UsageError(f"--node {name}: expected one of {', '.join(address_of)}")
    address, settings = address_of[name], opened.inventory.ssh
    options = [f"UserKnownHostsFile={_quoted(opened.cluster.known_hosts)}", "StrictHostKeyChecking=yes"]
    if settings.jump is not None:
        # OpenSSH gives a jump host none of these options: it looks into the user's own known_hosts there.
        options.append(f"ProxyJump={settings.jump.user or settings.user}@{settings.jump.host}:{settings.jump.port}")
    words = ["ssh", *(word for option in options for word in ("-o", option)), "-p", str(address.port)]
    if address.key is not None:
        words += ["-i", str(Path(address.key).expanduser())]
    words += [f"{address.user}@{address.host}", *([flags.run_command] if flags.run_command else [])]
    sys.stdout.flush()
    os.execvp("ssh", words)


def _quoted(path: Path) -> str:
    """One file for an option of OpenSSH that takes several, in which %h and the like stand for something."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
