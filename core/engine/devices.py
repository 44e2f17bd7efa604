"""The devices of this process and of joined workers: named, or refused with a remedy.

A worker proves that it computes as this process does: a tiny step by the library.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from core.engine.changes import first_line
from core.engine.runtime import beside, device, fetched, here, transient
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.inventory import Task
from core.inventory.slots import DeviceSettings
from kernels.library import operations

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def devices_here(settings: DeviceSettings, *, all_of_them: bool) -> tuple[str, ...]:
    """Return TensorFlow's names of this process's devices that compute; one unless `all_of_them`.

    Call it before anything else uses TensorFlow, which starts its devices with the first variable.
    Raises UsageError where the machine has none of this kind, or fewer than `ids` asks for.
    """
    if settings.kind == "cpu":
        return _processors(len(settings.ids or (0,)) if all_of_them else 1)
    physical_devices = tf.config.list_physical_devices(settings.kind.upper())
    if settings.ids is not None and all_of_them:
        count = len(settings.ids)
    else:
        count = 1
    if len(physical_devices) < count:
        raise UsageError(
            f"jobs.train.device: expected {count} {settings.kind}{'s' * (count > 1)} on this"
            f" machine, found {len(physical_devices)}: {remedy(settings.kind)}"
        )
    if all_of_them:
        used = physical_devices
    else:
        used = physical_devices[:1]
    # A second training of this process finds the devices as it wants them: TensorFlow refuses to
    # set them again.
    if tf.config.get_visible_devices(settings.kind.upper()) != used:
        tf.config.set_visible_devices(used, settings.kind.upper())
    for gpu in used if settings.kind == "gpu" else ():
        if tf.config.experimental.get_memory_growth(gpu) != settings.memory_growth:
            tf.config.experimental.set_memory_growth(gpu, settings.memory_growth)
    tf.config.set_soft_device_placement(settings.soft_placement)
    return tuple(beside(HOST, settings.kind, number) for number in range(len(used)))


def _processors(count: int) -> tuple[str, ...]:
    (processor,) = tf.config.list_physical_devices("CPU")
    if count > 1 and len(tf.config.get_logical_device_configuration(processor) or ()) != count:
        tf.config.set_logical_device_configuration(
            processor, [tf.config.LogicalDeviceConfiguration()] * count
        )
    return tuple(beside(HOST, "cpu", number) for number in range(count))


def refuse_workers_without(
    settings: DeviceSettings, workers: Sequence[Task], has: Callable[[str], bool]
) -> None:
    """Raise UsageError naming the workers whose server has no such device.

    `has` knows TensorFlow's names.
    """
    if settings.kind == "cpu":
        return
    lacking = [
        worker for worker in workers if not has(device("worker", worker.index, settings.kind))
    ]
    if lacking:
        names = ", ".join(f"{worker.name} on {worker.node}" for worker in lacking)
        raise UsageError(
            f"jobs.train.device: no {settings.kind} at {names}: `fab deploy check` shows what each"
            " node has. A worker takes its device when it starts: write it into the inventory,"
            " then `fab deploy restart`; `--set jobs.train.device.kind=cpu` trains without"
        )


def computing_words(settings: DeviceSettings, places: Sequence[str]) -> str:
    """Say what computes, for the first line of a training; nothing where it is the processor."""
    if tuple(places) != (HOST,):
        return f", computed on {', '.join(name.rpartition('/device:')[2] for name in places)}"
    if settings.kind == "cpu":
        return ""
    return f", each with a {settings.kind.upper()}"


def remedy(kind: str) -> str:
    """Say what helps where TensorFlow finds no device of this kind."""
    if kind == "tpu":
        return (
            "TPUs need Google's tensorflow-tpu in the environment; `--set"
            " jobs.train.device.kind=cpu` trains without"
        )
    built = tf.test.is_built_with_cuda()
    if built:
        missing = "`nvidia-smi` there shows what the driver has"
    else:
        missing = (
            "this TensorFlow is built without CUDA: `fab deploy start` installs the other one on"
            " x86_64 nodes, docs/devices.md says how here"
        )
    return f"{missing}; `--set jobs.train.device.kind=cpu` trains without"


REMEDY = (
    "install the same release there (`fab deploy start`), or take TensorFlow's arithmetic for all"
    " workers, `--set jobs.train.arithmetic=tensorflow`; in an app, keras.layers in the place of"
    " pscluster.keras"
)


def unproved(place: str) -> str | None:
    """Return why the process of the device `place` cannot compute as this one; None if it can.

    The step has dropout, an LSTM and an update; its answer is the version and a digest of all bits.

    Raises tf.errors.OpError if the process did not come to its answer, such as one that is killed.
    """
    try:
        answer = _step(place)
    except tf.errors.OpError as problem:
        if not _is_verdict(problem):
            raise
        return f"it cannot load the library of kernels ({first_line(problem)}): {REMEDY}"
    if answer != _own_proof():
        return (
            "its library of kernels computes other bits: version and digest are"
            f" {_hexadecimal(answer)} there and {_hexadecimal(_own_proof())} here: {REMEDY}"
        )
    return None


def _is_verdict(problem: "tf.errors.OpError") -> bool:
    """Return whether the process lives and says that it lacks the operation.

    All else may be well at the next attempt: TensorFlow has many words for a process that died.
    """
    lacks = tf.errors.NotFoundError | tf.errors.UnimplementedError
    return isinstance(problem, lacks) and not transient(problem)


@cache
def _own_proof() -> tuple[int, ...]:
    return _step(here())


def _step(place: str) -> tuple[int, ...]:
    with tf.device(place):
        answer: Any = operations().pscluster_proof()
    return tuple(int(word) for word in fetched(answer))


def _hexadecimal(digest: tuple[int, ...]) -> str:
    return " ".join(f"{word & 0xFFFFFFFF:x}" for word in digest)
