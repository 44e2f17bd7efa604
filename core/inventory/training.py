"""The job `train`: every knob of a training run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import (
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from core.ground.registry import Registry, either
from core.inventory.extensions import CODECS, MODELS, MODES, OPTIMIZERS, ModeFacts
from core.inventory.fields import Choice, Fraction, OptimizerOptions, Section, Seed, Text, invalid
from core.inventory.slots import (
    MOST_SLOTS,
    PROCESSORS,
    TENSORFLOW,
    ArithmeticSetting,
    BatchSlots,
    DeviceSettings,
    auto_slots,
    outside_library,
    slots_in_library,
)
from core.inventory.training_sections import (
    SECTION_NAMES,
    AugmentSettings,
    Auto,
    AveragingSettings,
    CheckpointSettings,
    ClassWeights,
    DataSettings,
    EarlyStopping,
    OneCycle,
    Pieces,
    RecipeName,
    ScheduleConfig,
    Subjects,
    completed,
)


def _one_of(registry: Registry[Any]) -> Any:
    """The union of the options of all extensions of a kind; the key `name` says which."""
    return Annotated[
        Union[tuple(extension.Options for extension in registry.values())],  # noqa: UP007
        Field(discriminator="name"),
    ]


if TYPE_CHECKING:
    ModeName: TypeAlias = str
    CodecConfig: TypeAlias = Choice
    ModelConfig: TypeAlias = Choice
    OptimizerConfig: TypeAlias = OptimizerOptions
else:
    ModeName = Literal[tuple(MODES)]
    CodecConfig = _one_of(CODECS)
    ModelConfig = _one_of(MODELS)
    OptimizerConfig = _one_of(OPTIMIZERS)


class _Keys(Section):
    """The keys of `jobs.train` before the modes' own sections."""

    recipe: RecipeName = Field(
        "shipped",
        description=(
            "gives the values left out: the shipped recipe, the best one for people without"
            " recordings, or a paper's"
        ),
    )
    mode: ModeName = Field(
        "async",
        description=(
            "how updates meet:"
            f" {', '.join(f'`{name}` {mode.summary}' for name, mode in MODES.items())}"
        ),
    )
    device: DeviceSettings = DeviceSettings()
    app: Text | None = Field(
        None,
        description=(
            "a Python file, or a folder with `app.py`, whose model and data take the place of"
            " `model` and of the recordings; relative to the folder of the inventory; null is none"
        ),
    )
    data: DataSettings = DataSettings()
    model: ModelConfig = MODELS[SECTION_NAMES["model"]].Options()
    epochs: int = Field(30, ge=1, le=100_000, description="passes over the training windows")
    batch_size: int = Field(100, ge=1, le=65_536, description="windows of one update")
    slots: Pieces = Field(
        "auto",
        description=(
            f"pieces a batch is cut into, which workers share: 1 to {MOST_SLOTS}, or `auto`"
            " ([modes](modes.md#slots))"
        ),
    )
    arithmetic: ArithmeticSetting = Field(
        "auto",
        description=(
            "what computes gradients and updates ([modes](modes.md#slots)); `auto` is the library"
            " for built-in networks on processors"
        ),
    )
    seed: Seed = Field(
        0, description="of the initial parameters, the order of windows, dropout and the split"
    )
    optimizer: OptimizerConfig = OPTIMIZERS[SECTION_NAMES["optimizer"]].Options()
    schedule: ScheduleConfig = OneCycle()
    clip_norm: float | None = Field(
        1.0, gt=0.0, description="gradients longer than this are cut to it; null never cuts"
    )
    l2: float = Field(0.0, ge=0.0, le=1.0, description="weight of the squared weights in the loss")
    label_smoothing: Fraction = Field(
        0.05, description="share of each label spread over all classes"
    )
    class_weights: ClassWeights = Field(
        None,
        description=(
            "what the loss of an example is multiplied by: `balanced` is examples / (classes x"
            " examples of its class); null is 1"
        ),
    )
    keep_probability: float = Field(
        1.0, gt=0.0, le=1.0, description="share of units that dropout keeps; 1 is no dropout"
    )
    augment: AugmentSettings | None = Field(
        None,
        description=(
            "turns and warps the training windows of a built-in network; null leaves them as"
            " they are"
        ),
    )
    replay_worst_batches: int = Field(
        0, ge=0, le=1000, description="batches of highest loss trained again each epoch"
    )
    validation_subjects: Subjects = Field(
        3,
        description=(
            "training subjects held out to choose the epoch by: how many, or a list of ids; 0 is"
            " none"
        ),
    )
    early_stopping: EarlyStopping | None = Field(
        None, description="ends the training when validation gets no better; null trains all epochs"
    )
    refit: bool = Field(
        False, description="train the recipe once more on all training subjects, then test that"
    )
    averaging: AveragingSettings | None = Field(
        None,
        description=(
            "averages the parameters at the ends of the last epochs; null takes those of one epoch"
        ),
    )
    codec: CodecConfig = CODECS["fp32"].Options()
    staleness_power: float = Field(
        1.0,
        ge=0.0,
        le=2.0,
        description=(
            "async and ssp: the rate of an update that is t updates stale is divided by t to this"
            " power"
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return completed(value)
        if value is None:
            return completed({})
        return value

    @field_validator("device")
    @classmethod
    def _is_of_use(cls, device: DeviceSettings, info: ValidationInfo) -> DeviceSettings:
        mode = info.data.get("mode")
        if (
            device.kind == "cpu"
            and device.ids is not None
            and mode is not None
            and not MODES[mode].spans_devices()
        ):
            several = either(name for name, facts in MODES.items() if facts.spans_devices())
            raise invalid(
                f"ids number the devices of a GPU or TPU node, and {mode} computes on processors as"
                " they are",
                f"leave ids out, or take mode {several}",
            )
        return device

    @field_validator("codec")
    @classmethod
    def _goes_with_the_mode(cls, codec: Choice, info: ValidationInfo) -> Choice:
        mode = info.data.get("mode")
        if mode is not None and CODECS[codec.name].keeps_back and MODES[mode].in_steps:
            whole = either(name for name, facts in CODECS.items() if not facts.keeps_back)
            pushes = either(name for name, facts in MODES.items() if not facts.in_steps)
            raise invalid(
                f"{codec.name} keeps on each worker what it did not send, so that the result of"
                f" {mode} would depend on who computed what",
                f"take {whole}, or mode {pushes}",
            )
        return codec

    @field_validator("early_stopping")
    @classmethod
    def _has_a_validation(
        cls, stopping: EarlyStopping | None, info: ValidationInfo
    ) -> EarlyStopping | None:
        if stopping is not None and info.data.get("validation_subjects") == 0:
            raise invalid(
                "it goes by the validation, and validation_subjects is 0, which holds out nothing",
                "hold out subjects, e.g. validation_subjects: 3, or set it to null",
            )
        return stopping

    @field_validator("averaging")
    @classmethod
    def _has_no_choice(
        cls, averaging: AveragingSettings | None, info: ValidationInfo
    ) -> AveragingSettings | None:
        if (
            averaging is not None
            and info.data.get("validation_subjects") != 0
            and not info.data.get("refit")
        ):
            raise invalid(
                "it averages the last epochs, and validation_subjects holds out people to choose"
                " one epoch by",
                "set validation_subjects: 0, or refit: true, whose second training it averages",
            )
        return averaging

    @field_validator("slots")
    @classmethod
    def _fits_the_batch(cls, count: int | Auto, info: ValidationInfo) -> int | Auto:
        batch_size = info.data.get("batch_size", MOST_SLOTS)
        if isinstance(count, int) and count > batch_size:
            problem = f"a batch of {batch_size} windows cannot be cut into {count} slots"
            raise invalid(problem, f"set it to at most {batch_size}")
        return count


if TYPE_CHECKING:
    _KeysAndModes = _Keys
else:
    _SECTIONS = {
        name: (mode.Options, mode.Options())
        for name, mode in MODES.items()
        if mode.Options is not None
    }
    _KeysAndModes = create_model("_KeysAndModes", __base__=_Keys, **_SECTIONS)


class TrainJob(_KeysAndModes):
    """Distributed training over the parameter servers."""

    checkpoint: CheckpointSettings = CheckpointSettings()
    deadline_seconds: float = Field(
        120.0,
        ge=1.0,
        le=3600.0,
        description="how long a worker may take over its first reply; later waits adapt",
    )

    from_run: Text | None = Field(
        None,
        description="folder of a run that gives the first parameters; it may have fewer classes",
    )
    tensorboard: bool = Field(
        False,
        description=(
            "also write TensorBoard's event files into the run's folder"
            " ([jobs](jobs.md#tensorboard))"
        ),
    )

    @property
    def facts(self) -> type[ModeFacts]:
        """The facts of the job's mode."""
        return MODES[self.mode]

    @property
    def mode_options(self) -> Any:
        """The section of the job's mode; None if the mode has none."""
        if self.facts.Options is None:
            return None
        return getattr(self, self.mode)

    @property
    def device_of_workers(self) -> DeviceSettings:
        """Return what workers compute on.

        It holds for the evaluation of a model that one process trained by itself too.
        """
        if self.facts.needs_roles():
            return self.device
        return PROCESSORS

    @property
    def compiled(self) -> bool:
        """Whether XLA compiles the gradient of a slot."""
        kernel = getattr(self.model, "kernel", "auto")
        return kernel == "xla" or (kernel == "auto" and self.device.kind == "tpu")

    @property
    def pieces(self) -> int:
        """`slots` of a job that is about to run: a number.

        Raises ValueError if it is still `auto`.
        """
        if isinstance(self.slots, int):
            return self.slots
        raise ValueError(
            "jobs.train.slots: expected a number, got auto: choose one first (cut_into)"
        )

    def by_library(self, *, own_model: bool) -> bool:
        """Return whether the settings ask the library to compute, or let it."""
        return self.arithmetic != TENSORFLOW and not outside_library(self, own_model=own_model)

    def several_a_call(self, *, by_library: bool) -> bool:
        """Return whether a call may do several updates, in a loop over the worker and the servers.

        No GPU or TPU was there to try it on. In steps the library computes any number of slots, and
        adds up what no codec rounds.
        """
        fits = not self.facts.in_steps or (by_library and self.codec.name == "fp32")
        several = self.facts.several_a_call(self.mode_options)
        return several and self.device.kind == "cpu" and fits

    def auto_slots(self, workers: int, cores: Sequence[int], *, own_model: bool) -> BatchSlots:
        """Return what `auto` slots are on `workers` workers, some of which said their `cores`."""
        if not self.by_library(own_model=own_model):
            return auto_slots(self.mode, self.batch_size, workers, cores)
        batch_norm = getattr(self.model, "batch_norm", False)
        return slots_in_library(self.batch_size, batch_norm=batch_norm)

    def computed_by(self, arithmetic: ArithmeticSetting) -> "TrainJob":
        """Return the job with this arithmetic."""
        return self.model_copy(update={"arithmetic": arithmetic})

    def cut_into(self, number: int) -> "TrainJob":
        """Return the job with this number of slots."""
        return self.model_copy(update={"slots": number})
