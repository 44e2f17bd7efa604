"""`mode: local`: a worker trains on several batches, then its change is averaged in."""

from typing import Any

from pydantic import Field

from core.consistency import Speeds
from core.consistency.asynchronous import Asynchronous
from core.inventory.fields import Fraction, Section


class LocalSettings(Section):
    """`mode: local`."""

    steps: int = Field(
        8, ge=1, le=1024, description="batches that a worker trains on between pull and push"
    )
    outer_rate: float = Field(
        1.0, gt=0.0, le=10.0, description="share of the workers' mean change that is applied"
    )
    outer_momentum: Fraction = Field(
        0.0, description="Nesterov momentum of the outer step; 0 is plain averaging"
    )


class LocalSteps(Asynchronous):
    """Local SGD (Stich, arXiv 1805.09767): changes are pushed as freely as gradients in `async`."""

    name = "local"
    summary = "averages after several local steps"
    update = "the change of `local.steps` batches on one worker"
    waits = "none"
    costs = "a `local.steps`th of the bytes; workers drift apart in between"
    parameters = "servers"
    in_steps = False
    repeatable = True
    mechanism = "cluster.jobs.modes.pushes:LocalMode"
    Options = LocalSettings

    @classmethod
    def several_a_call(cls, options: Any) -> bool:
        """Return False: an update has several batches."""
        return False

    @classmethod
    def policy(cls, options: LocalSettings, slots: int, speeds: Speeds) -> Any:
        """Make the policy without options, which concern what a worker does, not when."""
        return cls(slots, speeds)

    @classmethod
    def batches(cls, options: LocalSettings) -> int:
        """Return the local steps."""
        return options.steps
