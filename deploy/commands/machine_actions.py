"""The actions of `fab deploy` that only machines have.

`render` writes what other systems deploy them with, without a look at any machine.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.logs import say
from deploy.cluster.services import DegradedError, select_nodes
from deploy.commands.action import end_degraded, takes
from deploy.commands.flags import (
    AnsweredFlags,
    ClusterFlags,
    LimitFlags,
    Names,
    names,
    path,
    serial_flag,
    switch,
    text,
    word,
)
from deploy.commands.opening import open_cluster, open_inventory
from deploy.jobs.request import needs_data
from deploy.terminal.console import may_interrupt, require_yes

if TYPE_CHECKING:
    from core.inventory import Inventory
    from deploy.cluster.connector import Connector
    from deploy.cluster.login import PinnedKeys, Sighting, SshAddress


RESET_SECONDS = 900.0


class MonitorFlags(ClusterFlags):
    """The flags of `deploy monitor`."""

    out: str | None = path(
        "folder to write the files for another Prometheus into; nothing is started"
    )


class RollbackFlags(AnsweredFlags):
    """The flags of `deploy rollback`."""

    to: str | None = text("the release to go to, as `status` shows it; else the one before")
    serial: int = serial_flag()


class ResetFlags(AnsweredFlags):
    """The flags of `deploy reset`."""

    with_data: bool = switch("also remove the shared data and the runs")


class SshFlags(ClusterFlags):
    """The flags of `deploy ssh`."""

    node: Names = names("the node")
    run_command: str | None = text("a command line for the node; else a shell")


@takes(LimitFlags)
def push(flags: LimitFlags) -> None:
    """Bring environment and code onto the nodes, without restarting anything."""
    from deploy.converge.deployment import PUSH_PHASES

    opened = open_cluster(flags).for_machines("push")
    opened.run_phases("push", flags.limit, PUSH_PHASES)


@takes(LimitFlags)
def storage(flags: LimitFlags) -> None:
    """Set up the shared folder, with the prepared recordings in it, on its server and the nodes."""
    from deploy.converge.deployment import STORAGE_PHASES

    opened = open_cluster(flags).for_machines("storage")
    with_data = any(map(needs_data, opened.inventory.jobs.order))
    opened.run_phases("storage", flags.limit, STORAGE_PHASES, with_data=with_data)


@takes(MonitorFlags)
def monitor(flags: MonitorFlags) -> None:
    """Watch the cluster with a Prometheus of its own, or with --out write files for another."""
    if flags.out is None:
        open_cluster(flags).monitor()
        return
    # Files are for another Prometheus: this machine may have none of the cluster's addresses.
    inventory = open_inventory(flags, as_written=True)
    from deploy.monitor.files import all_files, write

    folder = Path(flags.out)
    files = all_files(inventory)
    written = write(folder, files)
    say(
        f"{len(files)} files in {folder}, {len(written)} new or changed; docs/monitoring.md says"
        " what reads them"
    )


@takes(RollbackFlags)
def rollback(flags: RollbackFlags) -> None:
    """Go back to the release that was current before, or --to, and restart what runs from it.

    All nodes go to one release. Workers are drained and services follow one another, as in
    `restart`. The next call resumes an interrupted rollback.
    """
    opened = open_cluster(flags).for_machines("rollback")
    from deploy.commands.rollback import roll_back

    names = select_nodes(opened.inventory, flags.limit)
    with opened.operator("rollback") as jobs:
        may_interrupt(jobs, flags.yes)
        roll_back(opened.cluster, names, flags.serial, flags.to)


@takes(ResetFlags)
def reset(flags: ResetFlags) -> None:
    """Remove everything that was ever installed on the nodes; data and runs only with --with-data.

    Asks first.
    """
    from deploy.cluster.fleet import split_errors
    from deploy.cluster.places import shared_folders

    opened = open_cluster(flags).for_machines("reset")
    names = select_nodes(opened.inventory, flags.limit)
    what = "everything of pscluster, packages that it added too"
    if flags.with_data:
        what += ", and the shared data and runs"
    if not flags.yes:
        if len(names) == 1:
            nodes = "1 node"
        else:
            nodes = f"{len(names)} nodes"
        require_yes(f"remove {what} from {nodes}?", "nothing was removed", "removes")
    shared = shared_folders(opened.inventory)
    done: list[str] = []
    results: dict[str, None | ClusterError] = {}

    def reset_one(node: "Connector") -> None:
        line = _reset_on(node, opened.inventory, flags.with_data)
        if node.name == shared.server and not flags.with_data:
            line += f"; {shared.export} stays with data and runs: `--with-data` removes it"
        say(f"{node.name}: {line}")
        done.append(node.name)

    try:
        with opened.operator("reset") as jobs, opened.cluster.fleet() as fleet:
            may_interrupt(jobs, flags.yes)
            # The clients first: a mount whose server is gone cannot be taken down in peace.
            for batch in (
                [name for name in names if name != shared.server],
                [name for name in names if name == shared.server],
            ):
                if batch:
                    say(f"removing everything from {', '.join(batch)}", error=True)
                    results |= fleet.each(reset_one, batch)
    except KeyboardInterrupt:
        incomplete = ", ".join(name for name in names if name not in done)
        say(f"interrupted: {incomplete} may have a part left; run it again", error=True)
        raise
    finally:
        opened.cluster.forget_nodes(done)
        opened.keys.forget(done)
    errors = split_errors(results)[1]
    if errors:
        raise DegradedError("\n".join(map(str, errors.values())))


def _reset_on(node: "Connector", inventory: "Inventory", with_data: bool) -> str:
    from deploy.common.command_line import shell
    from deploy.converge.apply import run_as_root
    from deploy.converge.subjects import reset_script

    script = reset_script(inventory, node.name, data=with_data)
    return " ".join(run_as_root(node, shell(script), "not reset", RESET_SECONDS).split())


@takes(AnsweredFlags)
def trust(flags: AnsweredFlags) -> None:
    """Show the fingerprints of the nodes' host keys and pin them. Asks first."""
    opened = open_cluster(flags).for_machines("trust")
    from core.inventory import this_machine
    from core.inventory.loading import addressed
    from deploy.cluster.cluster import TrustedAddresses, host_names, resolved_names
    from deploy.cluster.fleet import split_errors
    from deploy.cluster.login import PinnedKeys, Sighting, addresses
    from deploy.cluster.refusals import ask_for_key

    inventory = opened.inventory
    pinned = PinnedKeys(opened.cluster.known_hosts)
    names = select_nodes(inventory, flags.limit)
    hosts = resolved_names(inventory, names, this_machine())
    host_name_of = host_names(inventory)
    resolved = addressed(inventory, {**inventory.links, **hosts}, ())
    address_of = {address.name: address for address in addresses(resolved)}
    with opened.cluster.fleet() as fleet:
        jump = fleet.jump
        through = None
        if jump is not None:
            _pin(pinned, [pinned.standing(jump.address, ask_for_key(jump.address))], flags.yes)
            through = jump.open()

        def sight(node: "Connector") -> Sighting:
            address = address_of[node.name]
            if node.name in host_name_of.keys() - hosts.keys():
                raise ClusterError(
                    f"{node.name}: {host_name_of[node.name]} leads to no IPv4 address that this"
                    " node alone can have: write its address into the inventory"
                )
            return pinned.standing(address, ask_for_key(address, through))

        shown_keys, silent = split_errors(fleet.each(sight, names))
    sightings = list(shown_keys.values())
    unasked = [address for name, address in address_of.items() if name not in names]
    book = TrustedAddresses(opened.cluster.known_hosts)
    before = book.load()
    trusted = {name: hosts[name] for name in shown_keys if name in hosts}
    for name, host in trusted.items():
        was = before.get(name, ("", host))[1]
        say(
            f"{name}: {host_name_of[name]} is {host}"
            + (f" now, it was {was}" if was != host else "")
        )
    _pin(pinned, sightings, flags.yes, unasked)
    book.keep(inventory, trusted)
    for error in silent.values():
        say(error, error=True)
    if silent:
        end_degraded()


def _pin(
    pinned: "PinnedKeys",
    sightings: "list[Sighting]",
    yes: bool,
    unasked: "Sequence[SshAddress]" = (),
) -> None:
    for sighting in sightings:
        say(sighting.line)
    for line in _copies(pinned, sightings, unasked):
        say(line)
    other = [sighting for sighting in sightings if sighting.standing != "known"]
    if not sightings:
        return
    if not other:
        say(f"all {len(sightings)} are pinned in {pinned.path}")
        return
    if not yes:
        question = "compare them with `ssh-keygen -lf` of the key on each node; pin them?"
        require_yes(question, "nothing was pinned", "pins")
    pinned.record(other)
    say(f"pinned {len(other)} in {pinned.path}")


def _copies(
    pinned: "PinnedKeys", sightings: "Sequence[Sighting]", unasked: "Sequence[SshAddress]"
) -> list[str]:
    """Return a line for each host key of several nodes: each could pose as the others.

    The keys of `unasked`, which were not asked, are those that are pinned.
    """
    from deploy.cluster.login import fingerprint

    names: dict[str, list[str]] = {}
    for sighting in sightings:
        names.setdefault(fingerprint(sighting.key), []).append(sighting.address.name)
    pinned_keys = pinned.load()
    for address in unasked:
        for key in (pinned_keys.lookup(address.known_as) or {}).values():
            if (same := names.get(fingerprint(key))) is not None:
                same.append(address.name)
    return [
        f"warning: {', '.join(same)} show the same host key, as copied cards do, so that each can"
        " pose as the others: `sudo rm /etc/ssh/ssh_host_* && sudo dpkg-reconfigure"
        " openssh-server` on all but one, then trust again"
        for same in names.values()
        if len(same) > 1
    ]


@takes(SshFlags)
def ssh(flags: SshFlags) -> None:
    """Open a shell on one node (--node NAME), or run one command there."""
    opened = open_cluster(flags).for_machines("ssh")
    from deploy.cluster.login import addresses, jump_address
    from deploy.cluster.openssh import expanded

    if len(flags.node) != 1:
        raise UsageError("expected one --node NAME")
    (name,) = flags.node
    address_of = {address.name: address for address in addresses(opened.inventory)}
    if name not in address_of:
        raise UsageError(f"--node {name}: expected one of {', '.join(address_of)}")
    address = address_of[name]
    jump = jump_address(opened.inventory)
    options = [
        f"UserKnownHostsFile={_quoted(opened.cluster.known_hosts)}",
        "StrictHostKeyChecking=yes",
        f"HostKeyAlias={address.known_as}",
    ]
    if jump is not None:
        # OpenSSH gives a jump host none of these options: it looks into the user's own known_hosts
        # there.
        options.append(f"ProxyJump={jump.user}@{jump.host}:{jump.port}")
    if flags.run_command:
        options.append(
            "RemoteCommand=none"
        )  # OpenSSH refuses to run one beside that of its configuration
    command = [
        "ssh",
        *(word for option in options for word in ("-o", option)),
        "-p",
        str(address.port),
    ]
    if address.key is not None:
        command += ["-i", str(expanded(address.key)), "-o", "IdentitiesOnly=yes"]
    command += [
        f"{address.user}@{address.host}",
        *([flags.run_command] if flags.run_command else []),
    ]
    sys.stdout.flush()
    os.execvp("ssh", command)


def _quoted(path: Path) -> str:
    """Return one file for an option of OpenSSH that takes several and knows %h and the like."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


RENDERED_KINDS = ("kubernetes",)
ASSUMED_CORES = 4
"""Assumed for every node, as a Raspberry Pi has: they decide the memory of slots `auto`."""


class RenderFlags(ClusterFlags):
    """The flags of `deploy render`."""

    kind: str | None = word("what to write: kubernetes", needed=False, choices=RENDERED_KINDS)
    image: str | None = text("the image of all pods, NAME@sha256:DIGEST; else a tag")
    out: str | None = path("folder to write the files into; else they are printed")


@takes(RenderFlags)
def render(flags: RenderFlags) -> None:
    """Write what another system deploys the inventory with: `fab deploy render kubernetes`."""
    if flags.kind not in RENDERED_KINDS:
        if flags.kind is None:
            kind = "nothing"
        else:
            kind = repr(flags.kind)
        raise UsageError(
            f"deploy render: expected {' or '.join(RENDERED_KINDS)}, got {kind}, e.g. `fab deploy"
            " render kubernetes`"
        )
    inventory = open_cluster(flags, as_written=True).for_machines("deploy render").inventory
    if inventory.encrypted:
        raise UsageError(
            f"{inventory.path}: transport: wireguard is for machines over SSH: here the cluster's"
            " network plugin encrypts; give `--set transport=plain`"
        )
    from deploy.converge.deployment import minimum_workers
    from deploy.converge.machine_facts import memory_of_roles
    from deploy.monitor.files import write
    from deploy.render.kubernetes import manifests

    memory = memory_of_roles(inventory, {node.name: ASSUMED_CORES for node in inventory.nodes})
    memory_of_role = {role: memory.of(role) for role in ("ps", "worker", "coordinator")}
    files = manifests(inventory, memory_of_role, minimum_workers(inventory), flags.image or "")
    if flags.image is None:
        say(
            "the image is a tag, localhost/pscluster:latest, which may be another image tomorrow:"
            " --image NAME@sha256:DIGEST names one",
            error=True,
        )
    if flags.out is None:
        say("".join(f"# {name}\n---\n{text}---\n" for name, text in files.items()), end="")
        return
    folder = Path(flags.out)
    written = write(folder, files)
    say(
        f"{len(files)} files in {folder}, {len(written)} new or changed; docs/containers.md says"
        " what reads them"
    )
