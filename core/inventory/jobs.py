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

JobName = Literal["pi", "train", "cv", "evaluate", "recognise"]


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


class RecogniseJob(Section):
    """A long recording, labelled by the workers with a trained model."""

    run: Text | None = Field(
        None, description="folder of the training run whose model labels; null is the newest one"
    )
    data: Text | None = Field(
        None,
        description=(
            "the recording: a CSV t,ax,ay,az,gx,gy,gz, an .npz, or HAPT's acc_*.txt; where the job"
            " runs"
        ),
    )
    format: Text | None = Field(
        None,
        description=(
            "how the recording is written, as [formats](recordings.md) say, with its units; null:"
            " as above"
        ),
    )
    acceleration: Literal["g", "m/s2"] = Field(
        "g", description="unit of the recording's acceleration"
    )
    rotation: Literal["rad/s", "deg/s"] = Field("rad/s", description="unit of its angular velocity")
    hop: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="samples from one window to the next; null is the stride of the training",
    )


class Jobs(Section):
    """What `start` runs once the roles are ready, in the order written.

    A job not written can still be run by name.
    """

    pi: PiJob = PiJob()
    train: TrainJob = TrainJob()
    cv: CrossValidationJob = CrossValidationJob()
    evaluate: EvaluateJob = EvaluateJob()
    recognise: RecogniseJob = RecogniseJob()
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
