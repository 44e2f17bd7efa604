"""Everything about one node that would make a `start` fail there, with what to do about it.

Pure.
"""

from deploy.cluster.places import ENVIRONMENTS, publisher, shared_folders
from deploy.converge.check import MACHINES, Finding
from deploy.converge.devices import has_gpu
from deploy.converge.machine_facts import THROTTLED_NOW, MachineFacts
from deploy.converge.memory_estimate import LARGEST_SHARE, MEGABYTE
from deploy.converge.subject import Found, NodeSpec
from deploy.converge.subjects import SUBJECTS
from deploy.converge.survey import PUBLISHED_SECONDS
from deploy.release.requirements import PYTHONS

ENVIRONMENT_BYTES = 2_800 * MEGABYTE
"""Free space for an environment: 1.7 GB with its compiled modules, the wheels' copies and
unpacking, some to live."""
CUDA_ENVIRONMENT_BYTES = 12_000 * MEGABYTE
"""Free space for an environment with CUDA's libraries: 3 GB of wheels, twice as much unpacked."""
RELEASE_BYTES = 100 * MEGABYTE
HOT_CELSIUS = 80.0
_UNDER_VOLTAGE_NOW = 0x1
_UNDER_VOLTAGE_SEEN = 0x10000


def examine(spec: NodeSpec, facts: MachineFacts) -> tuple[Finding, ...]:
    """The findings for one node; a problem keeps it out of the run."""
    findings = [
        *_system(facts),
        *_python(facts),
        *_space(spec, facts),
        *_shared(spec, facts),
        *_memory(spec, facts),
        *_network(spec, facts),
        *(finding for subject in SUBJECTS for finding in subject.check(spec, facts)),
        *_board(facts),
    ]
    if not any(level == "problem" for level, _, _ in findings):
        what = facts.model or f"{facts.os_id} {facts.os_version}"
        line = (
            f"{what}, {facts.cores} cores, {facts.memory_bytes // MEGABYTE} MB, Python"
            f" {facts.python}"
        )
        findings.insert(0, ("ok", "node", line))
    return tuple(
        Finding(level, f"{spec.name} {subject}", line, spec.name)
        for level, subject, line in findings
    )


def _system(facts: MachineFacts) -> Found:
    if facts.machine not in MACHINES:
        line = (
            f"the processor runs as {facts.machine}, and TensorFlow has wheels for"
            f" {' and '.join(MACHINES)} only"
        )
        yield "problem", "platform", f"{line}: install a 64-bit Raspberry Pi OS on a Pi 3 or later"
    elif facts.bits != 64:
        line = f"a 64-bit kernel ({facts.machine}) under a {facts.bits}-bit system"
        yield (
            "problem",
            "platform",
            f"{line}: TensorFlow has no 32-bit wheels; install the 64-bit Raspberry Pi OS",
        )
    if facts.os_id not in ("debian", "raspbian", "ubuntu"):
        line = f"{facts.os_id or 'unknown'} {facts.os_version}: deployments know apt and systemd"
        yield "warning", "system", f"{line}, as Debian, Raspberry Pi OS and Ubuntu have them"


def _python(facts: MachineFacts) -> Found:
    if facts.python is None:
        yield (
            "problem",
            "python",
            "no /usr/bin/python3 that starts: `sudo apt install --reinstall python3` there",
        )
    elif facts.python_version not in PYTHONS:
        line = (
            f"/usr/bin/python3 is Python {facts.python}, and TensorFlow 2.21 has wheels for"
            f" {', '.join(PYTHONS)}"
        )
        yield "problem", "python", f"{line}: use Raspberry Pi OS bookworm (3.11) or trixie (3.13)"
    elif facts.python_bits != 64:
        yield (
            "problem",
            "python",
            f"a {facts.python_bits}-bit Python: TensorFlow has 64-bit wheels only",
        )


def _space(spec: NodeSpec, facts: MachineFacts) -> Found:
    installed = spec.environment_key is not None and spec.environment_key in facts.environments
    leftover = facts.leftover_bytes.get(ENVIRONMENTS, 0)
    if installed:
        needed = RELEASE_BYTES
        leftover = 0
    elif has_gpu(facts) and spec.inventory.jobs.train.device.kind == "gpu":
        needed = CUDA_ENVIRONMENT_BYTES
    else:
        needed = ENVIRONMENT_BYTES
    free = facts.disk_free_bytes.get(ENVIRONMENTS, 0) + leftover
    if free < needed:
        line = f"{free // MEGABYTE:,} MB are free below /opt, {needed // MEGABYTE:,} MB are needed"
        yield (
            "problem",
            "disk",
            f"{line}: remove something (`sudo apt clean`), or use a larger card",
        )
    elif shared_folders(spec.inventory).server == spec.name and spec.publishes_bytes:
        yield from _space_of_all(spec, facts, needed, leftover)


def _space_of_all(
    spec: NodeSpec, facts: MachineFacts, environment_bytes: int, leftover: int
) -> Found:
    """Check the room for what is published.

    `environment_bytes` are for the node itself, and may have to come from the same disk.
    """
    export = shared_folders(spec.inventory).export
    sent = sum(
        size for folder, size in facts.leftover_bytes.items() if folder.startswith(f"{export}/")
    )
    free = facts.disk_free_bytes.get(export, 0) + sent
    needed = spec.publishes_bytes
    also = ""
    if facts.place(export)[0] == facts.place(ENVIRONMENTS)[0]:
        free = free + leftover
        needed = needed + environment_bytes
        also = " with its own environment on the same disk"
    if free < needed:
        line = (
            f"{free // MEGABYTE:,} MB are free below {export}, {needed // MEGABYTE:,} MB are needed"
            " for what all nodes"
        )
        remedy = "remove something, or choose a folder on a larger disk as `storage.export`"
        yield "problem", "disk", f"{line} install{also}: {remedy}"


def _shared(spec: NodeSpec, facts: MachineFacts) -> Found:
    if spec.name == publisher(spec.inventory) and not facts.shared_answers:
        folders = shared_folders(spec.inventory)
        line = (
            f"{folders.publish_folder} ({folders.source}) does not answer within"
            f" {PUBLISHED_SECONDS} s"
        )
        yield "problem", "storage", f"{line}: is its server up, and can this node reach it?"


def _memory(spec: NodeSpec, facts: MachineFacts) -> Found:
    role_sizes: list[tuple[str, int]] = [
        (task.role, spec.memory.of(task.role)) for task in spec.tasks
    ]
    for role, settings in (("monitor", spec.monitor), ("service", spec.service)):
        if settings is not None:
            role_sizes.append((role, settings.memory_megabytes * MEGABYTE))
    needed = sum(size_bytes for _, size_bytes in role_sizes)
    roles = " + ".join(f"{role} {size_bytes // MEGABYTE}" for role, size_bytes in role_sizes)
    line = f"{roles} = {needed // MEGABYTE} MB of {facts.memory_bytes // MEGABYTE} MB"
    if needed > LARGEST_SHARE * facts.memory_bytes:
        remedy = "move the coordinator or the PS to another node, or train a smaller model"
        yield "problem", "memory", f"{line}: more than {LARGEST_SHARE:.0%}; {remedy}"
    elif role_sizes:
        yield "ok", "memory", line
    if "memory" not in facts.controllers:
        where = facts.cmdline_path or "/boot/firmware/cmdline.txt"
        yield (
            "warning",
            "memory limits",
            (
                "the kernel's memory controller is switched off, so nothing can hold the roles to"
                f" a limit: append `cgroup_enable=memory` to the one line of {where} and reboot"
            ),
        )


def _network(spec: NodeSpec, facts: MachineFacts) -> Found:
    address = spec.inventory.links[spec.name]
    interface = spec.inventory.node(spec.name).interface or spec.inventory.interface
    node_addresses = {
        address
        for interface_addresses in facts.addresses.values()
        for address in interface_addresses
    }
    if interface is not None and address not in facts.addresses.get(interface, ()):
        has = ", ".join(facts.addresses.get(interface, ())) or "no IPv4 address"
        line = f"{interface} has {has}, and the inventory says {address}"
        yield "problem", "network", f"{line}: correct the address, or `interface:`"
    elif address not in node_addresses:
        line = f"{address} is no address of this node (it has {', '.join(sorted(node_addresses))})"
        yield (
            "problem",
            "network",
            f"{line}: correct its `address:`; `ssh.address` is where it is logged into",
        )


def _board(facts: MachineFacts) -> Found:
    throttled = facts.throttled or 0
    if throttled & _UNDER_VOLTAGE_NOW:
        yield "warning", "power", "under-voltage now: use a stronger supply or a shorter cable"
    elif throttled & _UNDER_VOLTAGE_SEEN:
        yield (
            "warning",
            "power",
            "under-voltage since it was switched on: use a stronger supply or a shorter cable",
        )
    if throttled & THROTTLED_NOW or (facts.temperature_celsius or 0.0) > HOT_CELSIUS:
        if facts.temperature_celsius is None:
            heat = ""
        else:
            heat = f" at {facts.temperature_celsius:.0f} °C"
        yield "warning", "heat", f"throttled{heat}: cool it"
