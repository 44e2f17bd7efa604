"""Everything about one node that would make a `start` fail there, with what to do about it. Pure."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deploy.cluster.places import ENVIRONMENTS, shared_folders
from deploy.converge.check import MACHINES, Finding
from deploy.converge.devices import has_gpu
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.memory_estimate import LARGEST_SHARE, MEGABYTE
from deploy.converge.publication import publisher
from deploy.converge.subject import Found, NodeWish
from deploy.converge.subjects import SUBJECTS
from deploy.converge.survey import PUBLISHED_SECONDS
from deploy.release.requirements import PYTHONS
from deploy.render.units import MONITOR_PACKAGE_UNIT, MONITOR_UNIT, SERVICE_UNIT, unit_name, unit_path

if TYPE_CHECKING:
    from cluster.inventory import Task

ENVIRONMENT_BYTES = 2_800 * MEGABYTE
"""Free space for an environment: 1.7 GB with its compiled modules, the wheels' copies and unpacking, some to live."""
CUDA_ENVIRONMENT_BYTES = 12_000 * MEGABYTE
"""The same with CUDA's libraries: 3 GB of wheels, twice as much unpacked."""
RELEASE_BYTES = 100 * MEGABYTE
HOT_CELSIUS = 80.0
_UNDER_VOLTAGE_NOW, _THROTTLED_NOW, _UNDER_VOLTAGE_SEEN = 0x1, 0x4, 0x10000


def examine(wish: NodeWish, facts: MachineFacts) -> tuple[Finding, ...]:
    """The findings for one node; a problem keeps it out of the run."""
    found = [
        *_system(facts),
        *_python(facts),
        *_space(wish, facts),
        *_shared(wish, facts),
        *_memory(wish, facts),
        *_network(wish, facts),
        *(finding for subject in SUBJECTS for finding in subject.check(wish, facts)),
        *_ports(wish.tasks, facts),
        *_monitor(wish, facts),
        *_service(wish, facts),
        *_board(facts),
    ]
    if not any(level == "problem" for level, _, _ in found):
        what = facts.model or f"{facts.os_id} {facts.os_version}"
        line = f"{what}, {facts.cores} cores, {facts.memory_bytes // MEGABYTE} MB, Python {facts.python}"
        found.insert(0, ("ok", "node", line))
    return tuple(Finding(level, f"{wish.name} {subject}", line, wish.name) for level, subject, line in found)


def _system(facts: MachineFacts) -> Found:
    if facts.machine not in MACHINES:
        line = f"the processor runs as {facts.machine}, and TensorFlow has wheels for {' and '.join(MACHINES)} only"
        yield "problem", "platform", f"{line}: install a 64-bit Raspberry Pi OS on a Pi 3 or later"
    elif facts.bits != 64:
        line = f"a 64-bit kernel ({facts.machine}) under a {facts.bits}-bit system"
        yield "problem", "platform", f"{line}: TensorFlow has no 32-bit wheels; install the 64-bit Raspberry Pi OS"
    if facts.os_id not in ("debian", "raspbian", "ubuntu"):
        line = f"{facts.os_id or 'unknown'} {facts.os_version}: deployments know apt and systemd"
        yield "warning", "system", f"{line}, as Debian, Raspberry Pi OS and Ubuntu have them"


def _python(facts: MachineFacts) -> Found:
    if facts.python is None:
        yield "problem", "python", "no python3 that starts: `sudo apt install python3` there"
    elif facts.python_version not in PYTHONS:
        line = f"Python {facts.python}, and TensorFlow 2.21 has wheels for {', '.join(PYTHONS)}"
        yield "problem", "python", f"{line}: use Raspberry Pi OS bookworm (3.11) or trixie (3.13)"
    elif facts.python_bits != 64:
        yield "problem", "python", f"a {facts.python_bits}-bit Python: TensorFlow has 64-bit wheels only"


def _space(wish: NodeWish, facts: MachineFacts) -> Found:
    installed = wish.environment_key is not None and wish.environment_key in facts.environments
    cuda = has_gpu(facts) and wish.inventory.jobs.train.device.kind == "gpu"
    needed = RELEASE_BYTES if installed else CUDA_ENVIRONMENT_BYTES if cuda else ENVIRONMENT_BYTES
    leftover = 0 if installed else facts.leftover_bytes.get(ENVIRONMENTS, 0)
    free = facts.disk_free_bytes.get(ENVIRONMENTS, 0) + leftover
    if free < needed:
        line = f"{free // MEGABYTE:,} MB are free below /opt, {needed // MEGABYTE:,} MB are needed"
        yield "problem", "disk", f"{line}: remove something (`sudo apt clean`), or use a larger card"
    elif shared_folders(wish.inventory).server == wish.name and wish.publishes_bytes:
        yield from _space_of_all(wish, facts, needed, leftover)


def _space_of_all(wish: NodeWish, facts: MachineFacts, own: int, leftover: int) -> Found:
    """For what is published; `own` bytes are for the node itself, and may have to come from the same disk."""
    export = shared_folders(wish.inventory).export
    sent = sum(size for folder, size in facts.leftover_bytes.items() if folder.startswith(f"{export}/"))
    free, needed, also = facts.disk_free_bytes.get(export, 0) + sent, wish.publishes_bytes, ""
    if facts.place(export)[0] == facts.place(ENVIRONMENTS)[0]:
        free, needed, also = free + leftover, needed + own, " with its own environment on the same disk"
    if free < needed:
        line = (
            f"{free // MEGABYTE:,} MB are free below {export}, {needed // MEGABYTE:,} MB are needed for what all nodes"
        )
        remedy = "remove something, or choose a folder on a larger disk as `storage.export`"
        yield "problem", "disk", f"{line} install{also}: {remedy}"


def _shared(wish: NodeWish, facts: MachineFacts) -> Found:
    if wish.name == publisher(wish.inventory) and not facts.shared_answers:
        folders = shared_folders(wish.inventory)
        line = f"{folders.publish_folder} ({folders.source}) does not answer within {PUBLISHED_SECONDS} s"
        yield "problem", "storage", f"{line}: is its server up, and can this node reach it?"


def _memory(wish: NodeWish, facts: MachineFacts) -> Found:
    taken: list[tuple[str, int]] = [(task.role, wish.memory.of(task.role)) for task in wish.tasks]
    taken += [] if wish.monitor is None else [("monitor", wish.monitor.memory_megabytes * MEGABYTE)]
    taken += [] if wish.service is None else [("service", wish.service.memory_megabytes * MEGABYTE)]
    needed = sum(size_bytes for _, size_bytes in taken)
    roles = " + ".join(f"{role} {size_bytes // MEGABYTE}" for role, size_bytes in taken)
    line = f"{roles} = {needed // MEGABYTE} MB of {facts.memory_bytes // MEGABYTE} MB"
    if needed > LARGEST_SHARE * facts.memory_bytes:
        remedy = "move the coordinator or the PS to another node, or train a smaller model"
        yield "problem", "memory", f"{line}: more than {LARGEST_SHARE:.0%}; {remedy}"
    elif taken:
        yield "ok", "memory", line
    if "memory" not in facts.controllers:
        where = facts.cmdline_path or "/boot/firmware/cmdline.txt"
        yield (
            "warning",
            "memory limits",
            "the kernel's memory controller is switched off, so nothing can hold the roles to a limit: append "
            f"`cgroup_enable=memory` to the one line of {where} and reboot",
        )


def _network(wish: NodeWish, facts: MachineFacts) -> Found:
    address = wish.inventory.hosts[wish.name]
    interface = wish.inventory.node(wish.name).interface or wish.inventory.interface
    own = {address for found in facts.addresses.values() for address in found}
    if interface is not None and address not in facts.addresses.get(interface, ()):
        has = ", ".join(facts.addresses.get(interface, ())) or "no IPv4 address"
        line = f"{interface} has {has}, and the inventory says {address}"
        yield "problem", "network", f"{line}: correct the address, or `interface:`"
    elif address not in own:
        line = f"{address} is no address of this node (it has {', '.join(sorted(own))})"
        yield "problem", "network", f"{line}: correct its `address:`; `ssh.address` is where it is logged into"


def _ports(tasks: "Sequence[Task]", facts: MachineFacts) -> Found:
    ours = _ports_of_our_units(facts)
    for task in tasks:
        unit = facts.unit(unit_name(task))
        if task.role == "coordinator" or (unit is not None and unit.active in ("active", "activating")):
            continue
        for port in (task.port, task.metrics_port):
            if port in facts.listening and port not in ours:
                line = f"port {port} of {task.name} is taken by {facts.listening[port]}"
                yield "problem", "port", f"{line}: stop it, or choose another port"


def _monitor(wish: NodeWish, facts: MachineFacts) -> Found:
    if wish.monitor is None:
        return
    ours, theirs = facts.unit(MONITOR_UNIT), facts.unit(MONITOR_PACKAGE_UNIT)
    if theirs is not None and theirs.running:
        line = f"{MONITOR_PACKAGE_UNIT} runs here for another user, and the cluster's own would take its place"
        remedy = "`sudo systemctl disable --now prometheus` there, or give the role to another node and this one's"
        yield "problem", "monitor", f"{line}: {remedy} Prometheus the files of `fab deploy monitor --out DIR`"
    elif (ours is None or not ours.running) and wish.monitor.port in facts.listening:
        line = f"port {wish.monitor.port} of the monitor is taken by {facts.listening[wish.monitor.port]}"
        yield "problem", "port", f"{line}: stop it, or choose another as `monitor.port`"


def _service(wish: NodeWish, facts: MachineFacts) -> Found:
    ours = facts.unit(SERVICE_UNIT)
    if wish.service is not None and wish.service.certificate and wish.service.certificate not in facts.files:
        line = f"{wish.service.certificate} is not there"
        yield "problem", "service", f"{line}: put the certificate and its key on the node, or change `service`"
    if wish.service is None or (ours is not None and ours.running):
        return
    for port, name in ((wish.service.port, "port"), (wish.service.metrics_port, "metrics_port")):
        if port in facts.listening:
            line = f"port {port} of the service is taken by {facts.listening[port]}"
            yield "problem", "port", f"{line}: stop it, or choose another as `service.{name}`"


def _ports_of_our_units(facts: MachineFacts) -> set[int]:
    """Of roles that run with another index than the inventory gives them now: they are stopped before others start."""
    texts = [
        facts.files[path].content or b""
        for name, unit in facts.units.items()
        if unit.active in ("active", "activating") and (path := unit_path(name)) in facts.files
    ]
    return {int(port) for text in texts for port in re.findall(rb" --(?:metrics-)?port (\d+)", text)}


def _board(facts: MachineFacts) -> Found:
    throttled = facts.throttled or 0
    if throttled & _UNDER_VOLTAGE_NOW:
        yield "warning", "power", "under-voltage now: use a stronger supply or a shorter cable"
    elif throttled & _UNDER_VOLTAGE_SEEN:
        yield "warning", "power", "under-voltage since it was switched on: use a stronger supply or a shorter cable"
    if throttled & _THROTTLED_NOW or (facts.temperature_celsius or 0.0) > HOT_CELSIUS:
        heat = "" if facts.temperature_celsius is None else f" at {facts.temperature_celsius:.0f} °C"
        yield "warning", "heat", f"throttled{heat}: cool it"
