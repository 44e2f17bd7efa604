"""The job `train`: every knob of a training run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cluster.inventory.extensions import CODECS, MODELS, MODES, OPTIMIZERS, ModeFacts
from cluster.inventory.fields import Choice, Fraction, OptimizerOptions, Section, Seed, Text
from cluster.inventory.micro_batches import MOST, Auto
from cluster.registry import Registry, either

RecipeName = Literal["shipped", "thesis"]

THESIS: Mapping[str, Any] = {
    "model": {"name": "thesis", "batch_norm": True},
    "optimizer": {"name": "adam", "learning_rate": 0.001},
    "schedule": {"name": "constant"},
    "clip_norm": 15.0,
    "l2": 0.005,
    "label_smoothing": 0.0,
    "keep_probability": 0.85,
    "replay_worst_batches": 5,
}

RECIPES: Mapping[str, Mapping[str, Any]] = {"shipped": {}, "thesis": THESIS}

SECTION_NAMES: Mapping[str, str] = {"model": "thesis", "optimizer": "adamw", "schedule": "one_cycle"}
"""Sections that their key `name` distinguishes, with the default name of each."""


def completed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of `jobs.train` as given, with those of the recipe where they are missing.

    Within `model`, `optimizer` and `schedule` the recipe's values only go with the recipe's own choice of `name`.
    Wrong values stay as they are: the schema reports them.
    """
    chosen = given.get("recipe", "shipped")
    recipe = RECIPES.get(chosen, {}) if isinstance(chosen, str) else {}
    merged = {**recipe, **given}
    for key, default_name in SECTION_NAMES.items():
        preset = recipe.get(key, {"name": default_name})
        section = {} if merged.get(key) is None else merged[key]
        if isinstance(section, Mapping):
            name = section.get("name", preset["name"])
            merged[key] = {**(preset if name == preset["name"] else {}), "name": name, **section}
    return merged


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
    """A count or a list of ids; checked here so that a wrong value is one problem, not one a branch."""
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
    """`auto` or a count; checked here for the same reason."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST):
        return value
    raise PydanticCustomError(
        "micro_batches", f"expected `auto` or a whole number from 1 to {MOST}", {"remedy": "write auto"}
    )


Pieces = Annotated[int | Auto, BeforeValidator(_pieces)]


def _with(mode_names: Any) -> str:
    """The names of some modes as a sentence lists them."""
    return " and ".join(f"`{name}`" for name in mode_names)


class _Keys(Section):
    """The keys of `jobs.train` before the modes' own sections."""

    recipe: RecipeName = Field(
        "shipped", description="where values left out below come from: the shipped recipe, or the thesis's"
    )
    mode: ModeName = Field(
        "async",
        description=f"how updates meet: {', '.join(f'`{name}` {mode.summary}' for name, mode in MODES.items())}",
    )
    data: DataSettings = DataSettings()
    model: ModelConfig = MODELS[SECTION_NAMES["model"]].Options()
    epochs: int = Field(30, ge=1, le=100_000, description="passes over the training windows")
    batch_size: int = Field(100, ge=1, le=65_536, description="windows of one update")
    micro_batches: Pieces = Field(
        "auto",
        description=f"pieces a batch is cut into, computed side by side: 1 to {MOST}, or `auto`: one a core of a "
        f"worker, in {_with(name for name, mode in MODES.items() if mode.shares_batches())} at least one a worker "
        "([modes](modes.md#micro-batches))",
    )
    seed: Seed = Field(0, description="of the initial parameters, the order of windows, dropout and the split")
    optimizer: OptimizerConfig = OPTIMIZERS[SECTION_NAMES["optimizer"]].Options()
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

    @field_validator("codec")
    @classmethod
    def _goes_with_the_mode(cls, codec: Choice, known: ValidationInfo) -> Choice:
        mode = known.data.get("mode")
        if mode is not None and CODECS[codec.name].keeps_back and MODES[mode].in_steps:
            whole = either(name for name, found in CODECS.items() if not found.keeps_back)
            pushes = either(name for name, found in MODES.items() if not found.in_steps)
            raise PydanticCustomError(
                "codec_mode",
                f"{codec.name} keeps on each worker what it did not send, so that the result of {mode} would depend "
                "on who computed what",
                {"remedy": f"take {whole}, or mode {pushes}"},
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

    @property
    def facts(self) -> type[ModeFacts]:
        """The facts of the job's mode."""
        return MODES[self.mode]

    @property
    def mode_options(self) -> Any:
        """The section of the job's mode; None if the mode has none."""
        return None if self.facts.Options is None else getattr(self, self.mode)

    @property
    def pieces(self) -> int:
        """`micro_batches` of a job that is about to run: a number. Raises ValueError if it is still `auto`."""
        if isinstance(self.micro_batches, int):
            return self.micro_batches
        raise ValueError("jobs.train.micro_batches: expected a number, got auto: choose one first (cut_into)")

    def cut_into(self, number: int) -> "TrainJob":
        """The same job with this number of micro-batches."""
        return self.model_copy(update={"micro_batches": number})
