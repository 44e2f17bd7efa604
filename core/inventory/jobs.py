"""The section `jobs` of an inventory."""

from typing import Any, Literal, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

from core.inventory.cross_validation import CrossValidationJob
from core.inventory.fields import (
    Section,
    Seed,
    Text,
)
from core.inventory.training import TrainJob

JobName = Literal["pi", "train", "cv", "evaluate"]


class PiJob(Section):
    """Monte Carlo estimation of pi; the samples per second of each node are its calibration."""

    samples: int = Field(100_000_000, ge=1, le=10**15, description="random points of the whole job")
    chunk_samples: int = Field(
        8_000_000, ge=1, le=10**9, description="points of one dispatch to one worker"
    )
    seed: Seed = Field(0, description="of the random streams, one for each chunk")


class EvaluateJob(Section):
    """Accuracy and the other figures of a trained model on the test set.

    The workers compute them.
    """

    run: Text | None = Field(
        None, description="folder of the training run to evaluate; null is the newest one"
    )


class Jobs(Section):
    """What `start` runs once the roles are ready, in the order written.

    A job not written can still be run by name.
    """

    pi: PiJob = PiJob()
    train: TrainJob = TrainJob()
    cv: CrossValidationJob = CrossValidationJob()
    evaluate: EvaluateJob = EvaluateJob()
    _order: tuple[JobName, ...] = PrivateAttr(())

    @property
    def order(self) -> tuple[JobName, ...]:
        """Names of the jobs the inventory lists, first to run first."""
        return self._order

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        jobs = handler(value)
        if isinstance(value, dict):
            jobs._order = tuple(name for name in value if name in cls.model_fields)
        return jobs
