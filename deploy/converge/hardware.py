"""What a node is made of: GPUs and TPUs, memory, board, card, clock, and its kernel's cage. Pure.

It says whether the devices do for `jobs.train.device`, whether the card lasts or is a copy, how far
the clock may be off, and what Landlock can forbid a role and a job.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from core.cage.calls import coverage_under, what_holds
from core.cage.landlock import ASK_VERSION, CREATE_RULESET, Coverage, held_by
from core.cage.profiles import calls_of
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import (
    LARGEST_SHARE,
    MEGABYTE,
    THROTTLED_NOW,
    MachineFacts,
    Texts,
)
from deploy.converge.subject import DeploymentSpec, Found, Subject, words

if TYPE_CHECKING:
    from core.inventory import Inventory, Task


CUDA_MACHINE = "x86_64"
"""The only machine with a TensorFlow wheel with CUDA."""
MOST_NAMED = 16
NVIDIA = "/proc/driver/nvidia/gpus"
ACCELERATORS = "/dev/accel[0-9]*"
"""A folder a GPU, whose file `information` names its model; a device file a TPU."""


_DEVICE_SCRIPT = f"""\
section gpus
for gpu in {NVIDIA}/*/information; do sed -n 's/^Model:[[:space:]]*//p' "$gpu" 2>/dev/null; done
section tpus; ls -d {ACCELERATORS} 2>/dev/null
"""


def _gpus(text: str) -> Texts:
    return tuple(line.strip()[:60] for line in text.splitlines() if line.strip())


def _findings_of_devices(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    device_names = {kind: facts.more.get(f"{kind}s", ()) for kind in ("gpu", "tpu")}
    yield from device_findings(spec.inventory, spec.all_tasks, device_names, facts.machine)


def has_gpu(facts: MachineFacts) -> bool:
    """Whether NVIDIA's driver shows a GPU, on a machine for which there is a wheel with CUDA."""
    return facts.machine == CUDA_MACHINE and bool(facts.more.get("gpus"))


def devices_here() -> dict[str, Texts]:
    """Names of the devices of this machine, by kind."""
    gpus = [_gpu_model(path) for path in sorted(Path(NVIDIA).glob("*/information"))]
    return {
        "gpu": tuple(gpus),
        "tpu": tuple(sorted(map(str, Path("/").glob(ACCELERATORS.lstrip("/"))))),
    }


def _gpu_model(information: Path) -> str:
    with contextlib.suppress(OSError):
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.removeprefix("Model:").strip()[:60]
    return "GPU"


def device_findings(
    inventory: "Inventory",
    tasks: "Sequence[Task]",
    device_names: Mapping[str, Sequence[str]],
    machine: str,
) -> Found:
    """Compare a machine that carries these `tasks` with what `jobs.train.device` asks for.

    `device_names`: names of its devices by kind.
    """
    settings = inventory.jobs.train.device
    facts = inventory.jobs.train.facts
    if facts.needs_roles():
        workers = [task for task in tasks if task.role == "worker"]
    else:
        workers = []
    alone = not facts.needs_roles() and any(task.role == "coordinator" for task in tasks)
    if settings.kind == "cpu" or not (workers or alone):
        idle = {kind: len(names) for kind, names in device_names.items() if names}
        for kind, count in idle.items():
            if workers or alone:
                reason = f"jobs.train.device.kind is {settings.kind}"
            else:
                reason = "no worker is here"
            yield "ok", "devices", f"{_counted(count, kind)} that no training uses: {reason}"
        return
    kind = settings.kind
    names = device_names.get(settings.kind, ())
    if kind == "gpu" and machine != CUDA_MACHINE:
        yield (
            "problem",
            "devices",
            "jobs.train.device asks for a GPU, and TensorFlow's wheel with CUDA exists for"
            f" {CUDA_MACHINE} alone, this is {machine}: train on its processor (kind: cpu)",
        )
        return
    if not names:
        if kind == "gpu":
            remedy = "install NVIDIA's driver until `nvidia-smi` shows it"
        else:
            remedy = f"look for {ACCELERATORS}"
        yield (
            "problem",
            "devices",
            f"no {kind} is there, and jobs.train.device asks for one: {remedy}, or kind: cpu",
        )
        return
    if workers:
        device_numbers = [
            settings.of_worker(worker, inventory.workers_beside(worker)) for worker in workers
        ]
    elif facts.spans_devices():
        device_numbers = list(settings.ids or range(len(names)))
    else:
        device_numbers = [(settings.ids or (0,))[0]]
    yield from _compared(kind, names, device_numbers, [task.name for task in workers])


def _compared(
    kind: str, names: Sequence[str], device_numbers: Sequence[int | None], workers: Sequence[str]
) -> Found:
    missing = [number for number in device_numbers if number is None or number >= len(names)]
    have = f"{_counted(len(names), kind)} ({', '.join(dict.fromkeys(names[:MOST_NAMED]))})"
    if missing:
        if workers:
            demand = f"{len(device_numbers)} workers"
        else:
            demand = f"device {missing[0]}"
        remedy = "run fewer workers there, or correct jobs.train.device.ids"
        yield "problem", "devices", f"{have} for {demand}, each of which takes one: {remedy}"
        return
    idle = sorted(
        set(range(len(names))) - {number for number in device_numbers if number is not None}
    )
    if idle:
        if workers:
            remedy = "give the node as many workers"
        else:
            remedy = "mode mirrored uses all"
        yield (
            "warning",
            "devices",
            f"{have}, of which {', '.join(map(str, idle))} will stand idle: {remedy}",
        )
    else:
        yield "ok", "devices", f"{have}, all of them used"


def _counted(count: int, kind: str) -> str:
    return f"{count} {kind.upper()}{'s' * (count > 1)}"


DEVICES = Subject(
    "devices", "prepare", _DEVICE_SCRIPT, {"gpus": _gpus, "tpus": words}, _findings_of_devices
)


HOT_CELSIUS = 80.0
_UNDER_VOLTAGE_NOW = 0x1
_UNDER_VOLTAGE_SEEN = 0x10000


def memory_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    """Yield whether the roles of a node fit into its memory, and can be held to a limit."""
    role_sizes: list[tuple[str, int]] = [
        (task.role, spec.memory.of(task.role)) for task in spec.all_tasks
    ]
    if spec.watches:
        role_sizes.append(("monitor", spec.inventory.monitor.memory_megabytes * MEGABYTE))
    if spec.recognises:
        role_sizes.append(("service", spec.inventory.service.memory_megabytes * MEGABYTE))
    needed = sum(size_bytes for _, size_bytes in role_sizes)
    roles = " + ".join(f"{role} {size_bytes // MEGABYTE}" for role, size_bytes in role_sizes)
    line = f"{roles} = {needed // MEGABYTE} MB of {facts.memory_bytes // MEGABYTE} MB"
    if needed > LARGEST_SHARE * facts.memory_bytes:
        yield (
            "problem",
            "memory",
            f"{line}: more than {LARGEST_SHARE:.0%}; move the coordinator or the PS to"
            " another node, or train a smaller model",
        )
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


def board_findings(facts: MachineFacts) -> Found:
    """Yield what the board says of its power supply and its heat."""
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


_WRITABLE = ("/etc", "/opt", "/var/lib")
"""Folders that every deployment writes below."""
_NEW_KEYS = (
    "`sudo rm /etc/ssh/ssh_host_* && sudo dpkg-reconfigure openssh-server` there, then `fab deploy"
    " trust`"
)
_NEW_ID = (
    "`sudo rm -f /etc/machine-id /var/lib/dbus/machine-id && sudo systemd-machine-id-setup` there,"
    " and reboot"
)


_CARD_SCRIPT = f"""\
section unwritable; for folder in {quoted(*_WRITABLE)}; do [ -w $folder ] || echo $folder; done
section overlay; grep -owE 'boot=overlay|overlayroot=[^ ]+' /proc/cmdline 2>/dev/null
section machine_id; cat /etc/machine-id 2>/dev/null
section host_keys; awk '{{ print $2 }}' /etc/ssh/ssh_host_*_key.pub 2>/dev/null
"""


def _card_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    if facts.unwritable:
        yield (
            "problem",
            "card",
            f"root cannot write below {', '.join(facts.unwritable)}: the file system is"
            " read-only; `sudo dmesg | grep -i remount` says whether the kernel did that, as"
            " it does when a card fails",
        )
    if facts.overlay:
        yield (
            "warning",
            "card",
            f"an overlay file system ({facts.overlay} in /proc/cmdline) keeps what is written"
            " until the next boot alone: switch it off in `sudo raspi-config`, and reboot",
        )


def clones(facts_by_node: Mapping[str, MachineFacts]) -> dict[str, list[str]]:
    """Return by node what it shares with another node by a copied card, with the remedy."""
    lines_by_node: dict[str, list[str]] = {}
    for name, facts in facts_by_node.items():
        other_nodes = {
            other: other_facts for other, other_facts in facts_by_node.items() if other != name
        }
        same_keys = [
            other
            for other, other_facts in other_nodes.items()
            if other_facts.host_keys & facts.host_keys
        ]
        same_id = [
            other
            for other, other_facts in other_nodes.items()
            if facts.machine_id and other_facts.machine_id == facts.machine_id
        ]
        if same_keys:
            lines_by_node.setdefault(name, []).append(
                f"it has the SSH host key of {', '.join(same_keys)}, so that each can pose as"
                f" the other: {_NEW_KEYS}"
            )
        if same_id:
            lines_by_node.setdefault(name, []).append(
                f"it has the machine-id of {', '.join(same_id)}, as a copied card has: {_NEW_ID}"
            )
    return lines_by_node


CARD = Subject(
    "card",
    "prepare",
    _CARD_SCRIPT,
    {
        "unwritable": words,
        "overlay": str.strip,
        "machine_id": str.strip,
        "host_keys": lambda text: frozenset(text.split()),
    },
    _card_findings,
)


WRONG_CLOCK_SECONDS = 60.0
DRIFTING_CLOCK_SECONDS = 5.0


_CLOCK_SCRIPT = """\
section clock; date +%s.%N
section clock_synchronized; timedatectl show -p NTPSynchronized --value 2>/dev/null
"""


def _clock_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    apart = max(0.0, abs(facts.clock_offset_seconds) - facts.clock_error_seconds)
    if facts.clock_offset_seconds > 0:
        where = "ahead of"
    else:
        where = "behind"
    line = f"its clock is {abs(facts.clock_offset_seconds):.0f} s {where} this machine's"
    remedy = "`sudo timedatectl set-ntp true` there, with a time server it can reach"
    if apart > WRONG_CLOCK_SECONDS:
        yield "problem", "clock", f"{line}: {remedy}"
    elif apart > DRIFTING_CLOCK_SECONDS:
        yield "warning", "clock", f"{line}: {remedy}"
    elif facts.clock_synchronized is False:
        yield "warning", "clock", f"right now, but nothing keeps it so: {remedy}"


CLOCK = Subject(
    "clock",
    "prepare",
    _CLOCK_SCRIPT,
    {"clock_synchronized": lambda text: {"yes": True, "no": False}.get(text.strip())},
    _clock_findings,
)


_ASK_ABI = (
    "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
    f" print(libc.syscall({CREATE_RULESET}, None, 0, {ASK_VERSION}), ctypes.get_errno())"
)


_CAGE_SCRIPT = f"section cage; /usr/bin/python3 -I -c {quoted(_ASK_ABI)} 2>/dev/null\n"


def _coverage(text: str) -> Coverage | None:
    numbers = text.split()
    if len(numbers) != 2:  # no Python yet, which another finding is about
        return None
    return held_by(int(numbers[0]), int(numbers[1]))


def _cage_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    coverage = facts.more.get("cage")
    if coverage is not None:
        yield cage_finding(coverage, "role", "job")


def cage_finding(coverage: Coverage, *profiles: str) -> tuple[Literal["ok", "warning"], str, str]:
    """Return what a check says of a machine's kernel: what it holds of processes of these kinds."""
    if not coverage.abi:
        return (
            "warning",
            "cage",
            f"a role may read and write what its account may: {coverage.reason}",
        )
    lines = (
        f"{name}s are {what_holds(coverage_under(calls, coverage), calls).line}"
        for name, calls in zip(profiles, map(calls_of, profiles), strict=True)
    )
    return "ok", "cage", "; ".join(lines)


CAGE = Subject("cage", "prepare", _CAGE_SCRIPT, {"cage": _coverage}, _cage_findings)
