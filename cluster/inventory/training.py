"""The job `train`: every knob of a training run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Field, ValidationInfo, create_model, field_validator, model_validator

from cluster.inventory.data import DataSettings
from cluster.inventory.devices import PROCESSORS, DeviceSettings
from cluster.inventory.distillation import DistillSettings
from cluster.inventory.extensions import CODECS, MODELS, MODES, OPTIMIZERS, ModeFacts
from cluster.inventory.fields import Choice, Fraction, OptimizerOptions, Section, Seed, Text, invalid
from cluster.inventory.micro_batches import MOST_MICRO_BATCHES
from cluster.inventory.recipes import SECTION_NAMES, RecipeName, completed
from cluster.registry import Registry, either

Auto = Literal["auto"]


MAXIMUM_SUBJECTS = 10_000


def _one_of(registry: Registry[Any]) -> Any:
    """The union of the options of all extensions of a kind; the key `name` says which."""
    return Annotated[Union[tuple(found.Options for found in registry.values())], Field(discriminator="name")]  # noqa: UP007


if TYPE_CHECKING:
    ModeName: TypeAlias = str
    CodecConfig: TypeAlias = Choice
    ModelConfig: TypeAlias = Choice
    OptimizerConfig: TypeAlias = OptimizerOptions
else:
    ModeName = Literal[tuple(MODES)]
    CodecConfig, ModelConfig, OptimizerConfig = _one_of(CODECS), _one_of(MODELS), _one_of(OPTIMIZERS)


class Constant(Choice):
    """The same learning rate in every update."""

    name: Literal["constant"] = Field("constant", description="which schedule this is")


class OneCycle(Choice):
    """Cosine up to the learning rate, then cosine down to almost nothing, https://arxiv.org/abs/1708.07120.

    The divisors are those of PyTorch's OneCycleLR, with which the figures of the design were measured.
    """

    name: Literal["one_cycle"] = Field("one_cycle", description="which schedule this is")
    warmup_fraction: Fraction = Field(0.3, description="share of all updates in which the rate rises")
    initial_divisor: float = Field(25.0, ge=1.0, description="the first rate is the highest one divided by this")
    final_divisor: float = Field(10_000.0, ge=1.0, description="the last rate is the first one divided by this")


ScheduleConfig = Annotated[OneCycle | Constant, Field(discriminator="name")]
"""One of the schedules; the key `name` says which."""


class CheckpointSettings(Section):
    """What a run keeps to resume from."""

    every_seconds: float = Field(60.0, ge=0.0, le=86_400.0, description="time between two checkpoints, about")
    keep: int = Field(3, ge=1, le=1000, description="how many of the latest stay")


LARGEST_WEIGHT = 1e6


def _class_weights(value: object) -> object:
    """`none`, `balanced`, or a weight by label; checked here so that a wrong value is one problem."""
    if value in (None, "none"):
        return None
    if value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise invalid(
            "expected none, balanced, or a mapping of labels to weights", "write e.g. {WALKING: 1.0, SITTING: 2.5}"
        )
    for label, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= LARGEST_WEIGHT:
            raise invalid(
                f"expected a number above 0, at most {LARGEST_WEIGHT:,.0f}, for the label {label!r}",
                "write e.g. 2.5; labels left out have 1",
            )
    return {label: float(weight) for label, weight in value.items()}


ClassWeights = Annotated[Literal["balanced"] | dict[str, float] | None, BeforeValidator(_class_weights)]


class EarlyStopping(Section):
    """Ends a training whose validation has not got better for a number of epochs."""

    patience: int = Field(ge=1, le=100_000, description="epochs without a better one, after which the training ends")
    min_delta: float = Field(
        0.0,
        ge=0.0,
        description="an epoch is better, and selected, if its accuracy is higher by more than this; its loss lower, "
        "where there is no accuracy",
    )


class AugmentSettings(Section):
    """Changes each training window differently each time it is seen; what is validated and tested stays as it is."""

    rotation_degrees: float = Field(
        0.0, ge=0.0, le=180.0, description="each window's sensors are turned about a random axis, by at most this"
    )
    time_warp: Fraction = Field(0.0, description="a window's time runs faster and slower by at most this share")


class AveragingSettings(Section):
    """Stochastic weight averaging, https://arxiv.org/abs/1803.05407: the model is a mean over the last epochs."""

    start: Fraction = Field(0.75, description="share of the epochs after which the parameters of each are averaged")


def _subjects(value: object) -> object:
    """A count or a list of ids; checked here so that a wrong value is one problem, not one a branch."""
    if isinstance(value, bool) or not isinstance(value, int | tuple):
        raise invalid("expected how many subjects or a list of their ids", "write e.g. 3 or [1, 7, 21]")
    numbers = (value,) if isinstance(value, int) else value
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= MAXIMUM_SUBJECTS for n in numbers):
        raise invalid(f"expected whole numbers from 0 to {MAXIMUM_SUBJECTS}", "write e.g. 3 or [1, 7, 21]")
    if isinstance(value, tuple) and (len(set(value)) != len(value) or not value):
        raise invalid("expected at least one subject id and each once", "write e.g. [1, 7, 21], or 0")
    return value


Subjects = Annotated[int | tuple[int, ...], BeforeValidator(_subjects)]


def _pieces(value: object) -> object:
    """`auto` or a count; checked here for the same reason."""
    if value == "auto" or (type(value) is int and 1 <= value <= MOST_MICRO_BATCHES):
        return value
    raise invalid(f"expected `auto` or a whole number from 1 to {MOST_MICRO_BATCHES}", "write auto")


Pieces = Annotated[int | Auto, BeforeValidator(_pieces)]


def _with(mode_names: Any) -> str:
    """The names of some modes as a sentence lists them."""
    return " and ".join(f"`{name}`" for name in mode_names)


class _Keys(Section):
    """The keys of `jobs.train` before the modes' own sections."""

    recipe: RecipeName = Field(
        "shipped", description="where values left out below come from: the shipped recipe, or that of a paper"
    )
    mode: ModeName = Field(
        "async",
        description=f"how updates meet: {', '.join(f'`{name}` {mode.summary}' for name, mode in MODES.items())}",
    )
    device: DeviceSettings = DeviceSettings()
    app: Text | None = Field(
        None,
        description="a Python file, or a folder with `app.py`, whose model and data take the place of `model` and of "
        "the recordings; relative to the folder of the inventory; null is none",
    )
    data: DataSettings = DataSettings()
    model: ModelConfig = MODELS[SECTION_NAMES["model"]].Options()
    epochs: int = Field(30, ge=1, le=100_000, description="passes over the training windows")
    batch_size: int = Field(100, ge=1, le=65_536, description="windows of one update")
    micro_batches: Pieces = Field(
        "auto",
        description=f"pieces a batch is cut into, computed side by side: 1 to {MOST_MICRO_BATCHES}, or `auto`: one "
        f"a core of a worker, in {_with(name for name, mode in MODES.items() if mode.shares_batches())} at least one "
        "a worker ([modes](modes.md#micro-batches))",
    )
    seed: Seed = Field(0, description="of the initial parameters, the order of windows, dropout and the split")
    optimizer: OptimizerConfig = OPTIMIZERS[SECTION_NAMES["optimizer"]].Options()
    schedule: ScheduleConfig = OneCycle()
    clip_norm: float | None = Field(
        1.0, gt=0.0, description="gradients longer than this are cut to it; null never cuts"
    )
    l2: float = Field(0.0, ge=0.0, le=1.0, description="weight of the squared weights in the loss")
    label_smoothing: Fraction = Field(0.05, description="share of each label spread over all classes")
    class_weights: ClassWeights = Field(
        None,
        description="what the loss of an example is multiplied by, for its class: `none`, `balanced` (the rarer, the "
        "more: examples / (classes x examples of the class)), or a mapping of labels to weights",
    )
    keep_probability: float = Field(
        1.0, gt=0.0, le=1.0, description="share of units that dropout keeps; 1 is no dropout"
    )
    augment: AugmentSettings | None = Field(
        None, description="turns and warps the training windows of a built-in network; null leaves them as they are"
    )
    distill: DistillSettings | None = Field(
        None, description="learns from the answers of a finished run beside the labels; null has no teacher"
    )
    replay_worst_batches: int = Field(0, ge=0, le=1000, description="batches of highest loss trained again each epoch")
    validation_subjects: Subjects = Field(
        3, description="training subjects held out to choose the epoch by: how many, or a list of ids; 0 is none"
    )
    early_stopping: EarlyStopping | None = Field(
        None, description="ends the training when validation gets no better; null trains all epochs"
    )
    refit: bool = Field(False, description="train the recipe once more on all training subjects, then test that")
    averaging: AveragingSettings | None = Field(
        None, description="averages the parameters at the ends of the last epochs; null takes those of one epoch"
    )
    codec: CodecConfig = CODECS["fp32"].Options()
    staleness_power: float = Field(
        1.0,
        ge=0.0,
        le=2.0,
        description="async and ssp: the rate of an update that is t updates stale is divided by t to this power",
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        return completed(value) if isinstance(value, dict) else completed({}) if value is None else value

    @field_validator("device")
    @classmethod
    def _is_of_use(cls, device: DeviceSettings, known: ValidationInfo) -> DeviceSettings:
        mode = known.data.get("mode")
        if device.kind == "cpu" and device.ids is not None and mode is not None and not MODES[mode].spans_devices():
            several = either(name for name, found in MODES.items() if found.spans_devices())
            raise invalid(
                f"ids number the devices of a GPU or TPU node, and {mode} computes on processors as they are",
                f"leave ids out, or take mode {several}",
            )
        return device

    @field_validator("codec")
    @classmethod
    def _goes_with_the_mode(cls, codec: Choice, known: ValidationInfo) -> Choice:
        mode = known.data.get("mode")
        if mode is not None and CODECS[codec.name].keeps_back and MODES[mode].in_steps:
            whole = either(name for name, found in CODECS.items() if not found.keeps_back)
            pushes = either(name for name, found in MODES.items() if not found.in_steps)
            raise invalid(
                f"{codec.name} keeps on each worker what it did not send, so that the result of {mode} would depend "
                "on who computed what",
                f"take {whole}, or mode {pushes}",
            )
        return codec

    @field_validator("early_stopping")
    @classmethod
    def _has_a_validation(cls, stopping: EarlyStopping | None, known: ValidationInfo) -> EarlyStopping | None:
        if stopping is not None and known.data.get("validation_subjects") == 0:
            raise invalid(
                "it goes by the validation, and validation_subjects is 0, which holds out nothing",
                "hold out subjects, e.g. validation_subjects: 3, or set it to null",
            )
        return stopping

    @field_validator("averaging")
    @classmethod
    def _has_no_choice(cls, averaging: AveragingSettings | None, known: ValidationInfo) -> AveragingSettings | None:
        if averaging is not None and known.data.get("validation_subjects") != 0 and not known.data.get("refit"):
            raise invalid(
                "it averages the last epochs, and validation_subjects holds out people to choose one epoch by",
                "set validation_subjects: 0, or refit: true, whose second training it averages",
            )
        return averaging

    @field_validator("micro_batches")
    @classmethod
    def _fits_the_batch(cls, count: int | Auto, known: ValidationInfo) -> int | Auto:
        batch_size = known.data.get("batch_size", MOST_MICRO_BATCHES)
        if isinstance(count, int) and count > batch_size:
            problem = f"a batch of {batch_size} windows cannot be cut into {count} micro-batches"
            raise invalid(problem, f"set it to at most {batch_size}")
        return count


if TYPE_CHECKING:
    _KeysAndModes = _Keys
else:
    _SECTIONS = {name: (mode.Options, mode.Options()) for name, mode in MODES.items() if mode.Options is not None}
    _KeysAndModes = create_model("_KeysAndModes", __base__=_Keys, **_SECTIONS)


class TrainJob(_KeysAndModes):
    """Distributed training over the parameter servers."""

    checkpoint: CheckpointSettings = CheckpointSettings()
    deadline_seconds: float = Field(
        120.0, ge=1.0, le=3600.0, description="how long a worker may take over its first reply; later waits adapt"
    )

    tensorboard: bool = Field(
        False, description="also write TensorBoard's event files into the run's folder ([jobs](jobs.md#tensorboard))"
    )

    @property
    def facts(self) -> type[ModeFacts]:
        """The facts of the job's mode."""
        return MODES[self.mode]

    @property
    def mode_options(self) -> Any:
        """The section of the job's mode; None if the mode has none."""
        return None if self.facts.Options is None else getattr(self, self.mode)

    @property
    def device_of_workers(self) -> DeviceSettings:
        """What workers compute on, also for the evaluation of a model that one process trained by itself."""
        return self.device if self.facts.needs_roles() else PROCESSORS

    @property
    def compiled(self) -> bool:
        """Whether XLA compiles the gradient of a micro-batch."""
        kernel = getattr(self.model, "kernel", "auto")
        return kernel == "xla" or (kernel == "auto" and self.device.kind == "tpu")

    @property
    def pieces(self) -> int:
        """`micro_batches` of a job that is about to run: a number. Raises ValueError if it is still `auto`."""
        if isinstance(self.micro_batches, int):
            return self.micro_batches
        raise ValueError("jobs.train.micro_batches: expected a number, got auto: choose one first (cut_into)")

    def cut_into(self, number: int) -> "TrainJob":
        """The same job with this number of micro-batches."""
        return self.model_copy(update={"micro_batches": number})
