"""GPUs and TPUs of a node: whether they do for `jobs.train.device`, and which stand idle."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeSpec, Subject

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

CUDA_MACHINE = "x86_64"
"""The only machine with a TensorFlow wheel with CUDA."""
MOST_NAMED = 16
NVIDIA = "/proc/driver/nvidia/gpus"
ACCELERATORS = "/dev/accel[0-9]*"
"""A folder a GPU, whose file `information` names its model; a device file a TPU."""


def _script(questions: Questions) -> str:
    return f"""\
section gpus
for gpu in {NVIDIA}/*/information; do sed -n 's/^Model:[[:space:]]*//p' "$gpu" 2>/dev/null; done
section tpus; ls -d {ACCELERATORS} 2>/dev/null
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    gpus = [
        line.strip()[:60] for line in answer.sections.get("gpus", "").splitlines() if line.strip()
    ]
    return {"gpus": tuple(gpus), "tpus": tuple(answer.sections.get("tpus", "").split())}


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    device_names = {kind: _names(facts.more.get(f"{kind}s")) for kind in ("gpu", "tpu")}
    yield from device_findings(spec.inventory, spec.tasks, device_names, facts.machine)


def _names(fact: object) -> tuple[str, ...]:
    if isinstance(fact, tuple):
        return tuple(map(str, fact))
    return ()


def has_gpu(facts: MachineFacts) -> bool:
    """Whether NVIDIA's driver shows a GPU, on a machine for which there is a wheel with CUDA."""
    return facts.machine == CUDA_MACHINE and bool(facts.more.get("gpus"))


def devices_here() -> dict[str, tuple[str, ...]]:
    """Names of the devices of this machine, by kind."""
    gpus = [_model(path) for path in sorted(Path(NVIDIA).glob("*/information"))]
    return {
        "gpu": tuple(gpus),
        "tpu": tuple(sorted(map(str, Path("/").glob(ACCELERATORS.lstrip("/"))))),
    }


def _model(information: Path) -> str:
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
        line = (
            "jobs.train.device asks for a GPU, and TensorFlow's wheel with CUDA exists for"
            f" {CUDA_MACHINE} alone"
        )
        yield "problem", "devices", f"{line}, this is {machine}: train on its processor (kind: cpu)"
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


DEVICES = Subject("devices", "prepare", _script, _read, _check)
