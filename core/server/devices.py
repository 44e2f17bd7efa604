"""Which device a process takes: as a flag, and as an environment of TensorFlow."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HIDDEN = "-1"
"""CUDA's number of no device."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
TPU_VISIBLE = "TPU_VISIBLE_DEVICES"
EVERY = ",".join(map(str, range(64)))
"""Numbers of all GPUs: CUDA shows those before the first number that a machine has not (CUDA C
Programming Guide, environment variables). The variable cannot be left out: what loads TensorFlow
hides all GPUs where it is missing."""
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA's own order is by speed; this is that of nvidia-smi and of NVML."""
_WRITTEN = re.compile(r"(gpu|tpu):([0-9]{1,2})(:whole)?")


@dataclass(frozen=True)
class Taken:
    """One device of a node: `kind` is `gpu` or `tpu`, `whole` takes all of its memory at once."""

    kind: str
    number: int
    whole: bool = False

    @classmethod
    def of(cls, text: str) -> "Taken":
        """Read a flag such as `gpu:1`, or `gpu:1:whole`. Raises ValueError."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ValueError(f"expected gpu:NUMBER or tpu:NUMBER, got {text!r}")
        return cls(match[1], int(match[2]), bool(match[3]))

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" + (":whole" if self.whole else "")


def environment(device: Taken | None) -> Mapping[str, str]:
    """Return what a role sets before it loads TensorFlow: no device, or this one alone."""
    if device is None:
        return visible("cpu", ())
    return visible(device.kind, (device.number,), whole=device.whole)


def visible(kind: str, numbers: Sequence[int], *, whole: bool = False) -> Mapping[str, str]:
    """Return the environment in which TensorFlow sees these devices alone.

    Without `numbers` it sees all of a kind but `cpu`.

    All GPUs are those that the environment of this process leaves it.
    """
    device_list = ",".join(map(str, numbers))
    if kind != "gpu":
        return {
            **({TPU_VISIBLE: device_list} if kind == "tpu" and numbers else {}),
            VISIBLE: HIDDEN,
        }
    return {
        VISIBLE: device_list or os.environ.get(VISIBLE, EVERY),
        **ORDER,
        GROWTH: "false" if whole else "true",
    }


def visible_gpus() -> tuple[int, ...]:
    """Return the numbers of the GPUs that this process sees, as `nvidia-smi` has them.

    There are none where the environment does not say numbers.
    """
    device_list = os.environ.get(VISIBLE, "").split(",")
    if all(word.strip().isdecimal() for word in device_list):
        return tuple(map(int, device_list))
    return ()
