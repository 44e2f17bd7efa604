"""The job `train`: every knob of a training run."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cluster.inventory.codecs import CodecConfig, Fp32Codec
from cluster.inventory.fields import Fraction, Section, Seed, Text
from cluster.inventory.micro_batches import MOST, Auto
from cluster.inventory.models import ModelConfig, ThesisModel
from cluster.inventory.modes import (
    CheckpointSettings,
    LocalSettings,
    ModeName,
    SspSettings,
    SyncSettings,
)
from cluster.inventory.optimizers import AdamW, OneCycle, OptimizerConfig, ScheduleConfig
from cluster.inventory.recipes import RecipeName, completed

MAXIMUM_SUBJECTS = 10_000


class DataSettings(Section):
    """Which recordings, and how they are cut into windows."""

    source: Text | None = Field(
        None,
        description="a zip, a folder or an .npz file, or `synthetic`; null looks in `--data`, `$PSCLUSTER_DATA`, "
        "`../shared/data`, the user's cache folder, and falls back to `synthetic`",
    )
    window_steps: int = Field(128, ge=8, le=4096, description="samples of a window; 128 are 2.56 s at 50 Hz")
    window_stride: int = Field(64, ge=1, le=4096, description="samples from one window's start to the next one's")


def _subjects(value: object) -> object:
    """A count, or the ids themselves: decided here so that a wrong value gives one problem, not one a branch."""
    if isinstance(value, bool) or not isinstance(value, int | tuple):
        raise PydanticCustomError(
            "subjects", "expected how many subjects or a list of their ids", {"remedy": "write e.g. 3 or [1, 7, 21]"}
        )
    numbers = (value,) if isinstance(value, int) else value
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= MAXIMUM_SUBJECTS for n in numbers):
        raise PydanticCustomError(
            "subjects",
            f"expected whole numbers from 0 to {MAXIMUM_SUBJECTS}",
            {"remedy": "write e.g. 3 or [1, 7, 21]"},
        )
    if isinstance(value, tuple) and (len(set(value)) != len(value) or not value):
        raise PydanticCustomError(
            "subjects", "expected at least one subject id and each once", {"remedy": "write e.g. [1, 7, 21], or 0"}
        )
    return value


Subjects = Annotated[int | tuple[int, ...], BeforeValidator(_subjects)]


def _pieces(value: object) -> object:
    """`auto` or a count, decided here for the same reason."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST):
        return value
    raise PydanticCustomError(
        "micro_batches", f"expected `auto` or a whole number from 1 to {MOST}", {"remedy": "write auto"}
    )


Pieces = Annotated[int | Auto, BeforeValidator(_pieces)]


class TrainJob(Section):
    """Distributed training over the parameter servers."""

    recipe: RecipeName = Field(
        "shipped", description="where values left out below come from: the shipped recipe, or the thesis's"
    )
    mode: ModeName = Field(
        "async",
        description="how updates meet: `async` applies each as it arrives, `ssp` bounds how stale it may be, `sync` "
        "waits for all of a step, `local` averages after several local steps, `allreduce` exchanges among the workers, "
        "`single` is one process without a cluster",
    )
    data: DataSettings = DataSettings()
    model: ModelConfig = ThesisModel()
    epochs: int = Field(30, ge=1, le=100_000, description="passes over the training windows")
    batch_size: int = Field(100, ge=1, le=65_536, description="windows of one update")
    micro_batches: Pieces = Field(
        "auto",
        description=f"pieces a batch is cut into, computed side by side: 1 to {MOST}, or `auto`: one a core of a "
        "worker, in `sync` and `allreduce` at least one a worker ([modes](modes.md#micro-batches))",
    )
    seed: Seed = Field(0, description="of the initial parameters, the order of windows, dropout and the split")
    optimizer: OptimizerConfig = AdamW()
    schedule: ScheduleConfig = OneCycle()
    clip_norm: float | None = Field(
        1.0, gt=0.0, description="gradients longer than this are cut to it; null never cuts"
    )
    l2: float = Field(0.0, ge=0.0, le=1.0, description="weight of the squared weights in the loss")
    label_smoothing: Fraction = Field(0.05, description="share of each label spread over all classes")
    keep_probability: float = Field(
        1.0, gt=0.0, le=1.0, description="share of units that dropout keeps; 1 is no dropout"
    )
    replay_worst_batches: int = Field(0, ge=0, le=1000, description="batches of highest loss trained again each epoch")
    validation_subjects: Subjects = Field(
        3, description="training subjects held out to choose the epoch by: how many, or a list of ids; 0 is none"
    )
    refit: bool = Field(False, description="train the recipe once more on all training subjects, then test that")
    codec: CodecConfig = Fp32Codec()
    staleness_power: float = Field(
        1.0,
        ge=0.0,
        le=2.0,
        description="async and ssp: the rate of an update that is t updates stale is divided by t to this power",
    )
    ssp: SspSettings = SspSettings()
    sync: SyncSettings = SyncSettings()
    local: LocalSettings = LocalSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    deadline_seconds: float = Field(
        120.0, ge=1.0, le=3600.0, description="how long a worker may take over its first reply; later waits adapt"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        return completed(value) if isinstance(value, dict) else completed({}) if value is None else value

    @field_validator("codec")
    @classmethod
    def _goes_with_the_mode(cls, codec: CodecConfig, known: ValidationInfo) -> CodecConfig:
        mode = known.data.get("mode")
        if codec.name == "topk" and mode in ("sync", "allreduce", "single"):
            raise PydanticCustomError(
                "codec_mode",
                f"topk keeps on each worker what it did not send, so that the result of {mode} would depend on who "
                "computed what",
                {"remedy": "take fp32 or fp16, or mode async, ssp or local"},
            )
        return codec

    @field_validator("micro_batches")
    @classmethod
    def _fits_the_batch(cls, count: int | Auto, known: ValidationInfo) -> int | Auto:
        batch_size = known.data.get("batch_size", MOST)
        if isinstance(count, int) and count > batch_size:
            raise PydanticCustomError(
                "micro_batches",
                f"a batch of {batch_size} windows cannot be cut into {count} micro-batches",
                {"remedy": f"set it to at most {batch_size}"},
            )
        return count

    @property
    def pieces(self) -> int:
        """`micro_batches` of a job that is about to run: a number. Raises ValueError if it is still `auto`."""
        if isinstance(self.micro_batches, int):
            return self.micro_batches
        raise ValueError("jobs.train.micro_batches: expected a number, got auto: choose one first (cut_into)")

    def cut_into(self, number: int) -> "TrainJob":
        """The same job with this number of micro-batches."""
        return self.model_copy(update={"micro_batches": number})
