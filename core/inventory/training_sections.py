"""The sections of `jobs.train` with keys of their own, and recipes of papers.

A recipe is the keys of `jobs.train` that go with `recipe`, as far as a person leaves them out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
)

from core.documents.yaml_document import parse
from core.inventory.fields import (
    Choice,
    Fraction,
    Section,
    Text,
    are_distinct,
    invalid,
    word_or_number,
)
from core.inventory.slots import MOST_SLOTS

Auto = Literal["auto"]


MAXIMUM_SUBJECTS = 10_000


class Constant(Choice):
    """One learning rate for every update."""

    name: Literal["constant"] = Field("constant", description="which schedule this is")


class OneCycle(Choice):
    """Cosine up to the learning rate, then down to almost nothing (arXiv 1708.07120).

    The divisors are those of PyTorch's OneCycleLR.
    """

    name: Literal["one_cycle"] = Field("one_cycle", description="which schedule this is")
    warmup_fraction: Fraction = Field(
        0.3, description="share of all updates in which the rate rises"
    )
    initial_divisor: float = Field(
        25.0, ge=1.0, description="the first rate is the highest one divided by this"
    )
    final_divisor: float = Field(
        10_000.0, ge=1.0, description="the last rate is the first one divided by this"
    )


ScheduleConfig = Annotated[OneCycle | Constant, Field(discriminator="name")]
"""One of the schedules; the key `name` says which."""


class CheckpointSettings(Section):
    """What a run keeps to resume from."""

    every_seconds: float = Field(
        60.0, ge=0.0, le=86_400.0, description="time between two checkpoints, about"
    )
    every_updates: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="updates between two checkpoints; the sooner of the two counts",
    )
    keep: int = Field(3, ge=1, le=1000, description="how many of the latest stay")


LARGEST_WEIGHT = 1e6


def _class_weights(value: object) -> object:
    """Check `none`, `balanced`, or a weight by label.

    A wrong value is one problem here.
    """
    if value in (None, "none"):
        return None
    if value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise invalid(
            "expected none, balanced, or a mapping of labels to weights",
            "write e.g. {WALKING: 1.0, SITTING: 2.5}",
        )
    for label, weight in value.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight <= LARGEST_WEIGHT
        ):
            raise invalid(
                f"expected a number above 0, at most {LARGEST_WEIGHT:,.0f}, for the label"
                f" {label!r}",
                "write e.g. 2.5; labels left out have 1",
            )
    return {label: float(weight) for label, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | dict[str, float] | None, BeforeValidator(_class_weights)
]


class EarlyStopping(Section):
    """Ends a training when its validation has not improved for some epochs."""

    patience: int = Field(
        ge=1, le=100_000, description="epochs without a better one, after which the training ends"
    )
    min_delta: float = Field(
        0.0,
        ge=0.0,
        description=(
            "an epoch is better, and selected, if its accuracy is higher by more than this; where"
            " it is equal or there is none, its loss lower"
        ),
    )


class AugmentSettings(Section):
    """Changes each training window differently each time it is seen.

    What is validated and tested stays as it is.
    """

    rotation_degrees: float = Field(
        0.0,
        ge=0.0,
        le=180.0,
        description="each window's sensors are turned about a random axis, by at most this",
    )
    time_warp: Fraction = Field(
        0.0, description="a window's time runs faster and slower by at most this share"
    )


class AveragingSettings(Section):
    """Stochastic weight averaging, https://arxiv.org/abs/1803.05407.

    The model is a mean over the last epochs.
    """

    start: Fraction = Field(
        0.75, description="share of the epochs after which the parameters of each are averaged"
    )


def _subjects(value: object) -> object:
    """Check a count or a list of ids.

    A wrong value is one problem here, not one a branch.
    """
    if not are_distinct((value,) if type(value) is int else value, 0, MAXIMUM_SUBJECTS):
        raise invalid(
            "expected how many subjects, or a list of ids, each once, from 0 to"
            f" {MAXIMUM_SUBJECTS}",
            "write e.g. 3 or [1, 7, 21]",
        )
    return value


Subjects = Annotated[int | tuple[int, ...], BeforeValidator(_subjects)]
Pieces = Annotated[int | Auto, word_or_number("auto", 1, MOST_SLOTS, "write auto")]


BESIDE = {"source", "window_steps", "window_stride", "most_gigabytes"}
"""Settings that are no options of a reader."""


class DataSettings(Section):
    """Which data, and how they are made into examples."""

    source: Text | None = Field(
        None,
        description=(
            "a zip, a folder, an .npz, or `synthetic`; null"
            " [looks for recordings](data.md#where-recordings-are-looked-for)"
        ),
    )
    window_steps: int = Field(
        128, ge=8, le=4096, description="samples of a window; 128 are 2.56 s at 50 Hz"
    )
    window_stride: int = Field(
        64, ge=1, le=4096, description="samples from one window's start to the next one's"
    )
    format: Text | None = Field(
        None,
        description=(
            "how recordings are written: a name of `core/data/formats`, or a YAML file; null takes"
            " a `format.yaml` in their folder"
        ),
    )
    sampling_hz: float | None = Field(
        None,
        ge=1.0,
        le=1000.0,
        description="of `described`: the rate of windows; null takes the format's `time.hertz`",
    )
    label_share: float = Field(
        1.0,
        gt=0.5,
        le=1.0,
        description="of `described`: the share of a window's samples that have its label",
    )
    bad_lines: float | None = Field(
        None,
        ge=0.0,
        lt=0.5,
        description="of `described`: the share of lines that may be damaged; null: the format's",
    )
    nine_channels: bool = Field(
        False,
        description=(
            "of `described`: windows have the nine channels of `hapt`, at 50 Hz and filtered; else"
            " the format's channels as they are"
        ),
    )
    groups: Literal["user", "device", "session"] = Field(
        "user",
        description=(
            "of `hhar` (`user`, `device`) and `described` (`user`, `session`): what stays whole in"
            " validation, test and cross-validation"
        ),
    )
    test_set: Text | None = Field(
        None, description="of `sets`: the set that is the test; null takes a fifth of them"
    )
    split: Literal["groups", "random", "time"] = Field(
        "groups",
        description=(
            "of `hhar` and `described`: the test gets a fifth of the groups, whole; the last fifth"
            " of each recording at `time`; or a fifth of the windows at `random`, which is a leak"
        ),
    )
    null_class: bool = Field(
        True,
        description=(
            "of `hhar`: readings without an activity, `null`, are a class; false leaves them out"
        ),
    )
    most_gigabytes: float = Field(
        8.0,
        gt=0.0,
        le=100_000.0,
        description="most that an iterator of an app's data() may bring",
    )
    filters: Literal["two-way", "causal"] = Field(
        "two-way",
        description=(
            "of `hapt`, `synthetic` and the nine channels of `described`: filtered forwards and"
            " backwards, or forwards only, as a live stream"
        ),
    )

    def options(self) -> dict[str, Any]:
        """Return what readers know besides windows, by name, as JSON has it."""
        return self.model_dump(mode="json", exclude=BESIDE)


RecipeName = Literal["shipped", "unseen", "thesis", "kimm", "kth"]

_RECIPES = Path(__file__).with_name("recipes.yaml")
RECIPES: Mapping[str, Mapping[str, Any]] = parse(
    _RECIPES.read_text(encoding="utf-8"), _RECIPES.name
).value
"""The keys of each recipe; the file says where they are from."""

OF_THE_NETWORK = ("model", "augment", "optimizer")
"""Keys of a recipe that an app's own model does without."""


def normed_as_in_the_thesis(model: Any) -> Any:
    """Return the section `model` with batch norm where the thesis has it.

    It stands behind residual cells, not in plain layers.
    """
    if not isinstance(model, Mapping) or model.get("name") != "thesis" or "batch_norm" in model:
        return model
    cells = model.get("n_layers_in_highway", 0)
    return {**model, "batch_norm": isinstance(cells, int) and cells > 0}


SECTION_NAMES: Mapping[str, str] = {
    "model": "thesis",
    "optimizer": "adamw",
    "schedule": "one_cycle",
}
"""Sections that their key `name` distinguishes, with the default name of each."""


def completed(settings: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of `jobs.train` as given, with those of the recipe where they are missing.

    Within `model`, `optimizer` and `schedule` the recipe's values only go with the recipe's own
    choice of `name`; within `data` they stand beside the given ones. Wrong values stay as they are:
    the schema reports them.
    """
    chosen = settings.get("recipe", "shipped")
    if isinstance(chosen, str):
        recipe = RECIPES.get(chosen, {})
    else:
        recipe = {}
    if chosen == "unseen" and settings.get("app") is not None:
        recipe = {key: value for key, value in recipe.items() if key not in OF_THE_NETWORK}
    merged = {**recipe, **settings}
    if "data" in recipe and isinstance(settings.get("data"), Mapping):
        merged["data"] = {**recipe["data"], **settings["data"]}
    for key, default_name in SECTION_NAMES.items():
        preset = recipe.get(key, {"name": default_name})
        if merged.get(key) is None:
            section = {}
        else:
            section = merged[key]
        if isinstance(section, Mapping):
            name = section.get("name", preset["name"])
            merged[key] = {**(preset if name == preset["name"] else {}), "name": name, **section}
    if chosen == "thesis":
        merged["model"] = normed_as_in_the_thesis(merged["model"])
    return merged


def apart_from_recipe(recipe: str, settings: Mapping[str, Any]) -> list[str]:
    """Keys of the recipe that a training has other values for, such as `epochs 12 instead of 50`.

    `settings` are those of `jobs.train`, as JSON has them. An app's own model takes the place of
    the keys that are about a network.
    """
    differences = []
    for key, preset in RECIPES[recipe].items():
        if settings.get("app") is not None and key in OF_THE_NETWORK:
            continue
        setting = settings.get(key)
        presets = preset.items() if isinstance(preset, Mapping) else [("", preset)]
        for part, value in presets:
            if part and isinstance(setting, Mapping):
                has = setting.get(part)
            else:
                has = setting
            if has != value:
                differences.append(
                    f"{key}{f'.{part}' if part else ''} {_as_written(has)} instead of"
                    f" {_as_written(value)}"
                )
                if part == "name":  # the other keys belong to another choice
                    break
    return differences


def _as_written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
