"""`jobs.train.device`: what computes a training.

It also says which of a node's devices each worker takes.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from core.inventory.fields import Section, are_distinct, invalid
from core.inventory.task import Task

DeviceKind = Literal["cpu", "gpu", "tpu"]
MOST_DEVICES = 64


def _ids(value: object) -> object:
    """Check one number, or several.

    A wrong value is one problem here, not one a number.
    """
    numbers = (value,) if type(value) is int else value
    if numbers is not None and not are_distinct(numbers, 0, MOST_DEVICES - 1):
        raise invalid(
            f"expected different numbers of devices from 0 to {MOST_DEVICES - 1}",
            "write e.g. [0, 1], or null",
        )
    return numbers


class DeviceSettings(Section):
    """What computes the gradients; the parameters stay in the memory of the processors."""

    kind: DeviceKind = Field(
        "cpu",
        description=(
            "`gpu` needs NVIDIA's driver, `tpu` a TPU machine; then every node with a worker has"
            " some"
        ),
    )
    ids: Annotated[tuple[int, ...] | None, BeforeValidator(_ids)] = Field(
        None,
        description=(
            "which of a node's devices, as `nvidia-smi` numbers them: its first worker takes the"
            " first, and so on; `mirrored` takes all, and on `cpu` makes so many logical ones; null"
            " counts from 0"
        ),
    )
    memory_growth: bool = Field(
        True,
        description=(
            "take a GPU's memory as it is needed; false takes all of it at once, as TensorFlow does"
        ),
    )
    soft_placement: bool = Field(
        True,
        description=(
            "what a device cannot compute goes to the processor; false ends the job with the"
            " operation"
        ),
    )

    def of_worker(self, task: Task, workers: Sequence[Task]) -> int | None:
        """Return the device that `task` takes, as its machine numbers them; None on processors.

        `workers` are those of one machine.

        None too for a worker for which `ids` leaves none.
        """
        if self.kind == "cpu" or task not in workers:
            return None
        place = workers.index(task)
        if self.ids is None:
            return place
        if place < len(self.ids):
            return self.ids[place]
        return None


PROCESSORS = DeviceSettings()
