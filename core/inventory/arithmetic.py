"""Which arithmetic a training computes in, and why: the library's or TensorFlow's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.inventory.slots import is_power_of_two

if TYPE_CHECKING:
    from core.inventory.training import TrainJob

LIBRARY: Literal["library"] = "library"
TENSORFLOW: Literal["tensorflow"] = "tensorflow"
ArithmeticName = Literal["library", "tensorflow"]
ArithmeticSetting = Literal["auto", "library", "tensorflow"]


@dataclass(frozen=True)
class ChosenArithmetic:
    """The arithmetic in use, one for all workers of a run, and why it is that."""

    name: ArithmeticName
    why: str


def outside_library(job: "TrainJob", *, own_model: bool) -> str | None:
    """Return why the settings of a job ask for TensorFlow's arithmetic; None where they do not.

    `own_model`: whether an app brings the model.
    """
    if own_model:
        return "the library computes the built-in networks, and the app brings a model"
    if job.compiled:
        return "XLA compiles the network"
    if getattr(job.model, "kernel", "auto") == "fused":
        return "model.kernel is fused, TensorFlow's own operations"
    if job.device.kind != "cpu":
        return f"a {job.device.kind} computes in its own way"
    if isinstance(job.slots, int) and not is_power_of_two(job.slots):
        return f"the library takes powers of two, and slots is {job.slots}"
    return None
