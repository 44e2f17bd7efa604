"""Recipes of papers: the keys of `jobs.train` that go with `recipe`, as far as a person leaves them out."""

from collections.abc import Mapping
from typing import Any, Literal

THESIS: Mapping[str, Any] = {
    "model": {"name": "thesis"},
    "epochs": 250,
    "batch_size": 100,
    "optimizer": {"name": "adam", "learning_rate": 0.001},
    "schedule": {"name": "constant"},
    "clip_norm": 15.0,
    "l2": 0.005,
    "label_smoothing": 0.0,
    "keep_probability": 0.85,
    "replay_worst_batches": 5,
}
"""The printed configuration of the thesis (`thesis-hyperparameters` in `cluster/references/`)."""

KIMM: Mapping[str, Any] = {
    "model": {"name": "dblstm"},
    "epochs": 30,
    "batch_size": 64,
    "optimizer": {"name": "adam", "learning_rate": 0.001},
    "schedule": {"name": "constant"},
    "clip_norm": None,
    "l2": 0.0,
    "label_smoothing": 0.0,
    "keep_probability": 1.0,
    "replay_worst_batches": 0,
}
"""Kimm's printed code (`kimm-settings` in `cluster/references/`); its comparison of devices has batches of 128."""

KTH: Mapping[str, Any] = {
    "data": {"window_steps": 200, "window_stride": 20},
    "model": {"name": "kth"},
    "epochs": 50,
    "batch_size": 1000,
    "optimizer": {"name": "adam", "learning_rate": 0.0025},
    "schedule": {"name": "constant"},
    "clip_norm": None,
    "l2": 0.0015,
    "label_smoothing": 0.0,
    "keep_probability": 1.0,
    "staleness_power": 0.0,
}
"""Of Sozinov and Hammar: network, window, batch and epochs from their slides; stride, optimizer, rate and L2, which the
slides leave out, from their repository. Its updates are not slowed down for being stale, and gradients not cut. The
split stays by people; theirs was `split: random`."""


def normed_as_in_the_thesis(model: Any) -> Any:
    """The section `model` with batch norm where the thesis has it: behind residual cells, not in plain layers."""
    if not isinstance(model, Mapping) or model.get("name") != "thesis" or "batch_norm" in model:
        return model
    cells = model.get("n_layers_in_highway", 0)
    return {**model, "batch_norm": isinstance(cells, int) and cells > 0}


RecipeName = Literal["shipped", "thesis", "kimm", "kth"]

RECIPES: Mapping[str, Mapping[str, Any]] = {"shipped": {}, "thesis": THESIS, "kimm": KIMM, "kth": KTH}

SECTION_NAMES: Mapping[str, str] = {"model": "thesis", "optimizer": "adamw", "schedule": "one_cycle"}
"""Sections that their key `name` distinguishes, with the default name of each."""


def completed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of `jobs.train` as given, with those of the recipe where they are missing.

    Within `model`, `optimizer` and `schedule` the recipe's values only go with the recipe's own choice of `name`;
    within `data` they stand beside the given ones.
    Wrong values stay as they are: the schema reports them.
    """
    chosen = given.get("recipe", "shipped")
    recipe = RECIPES.get(chosen, {}) if isinstance(chosen, str) else {}
    merged = {**recipe, **given}
    if "data" in recipe and isinstance(given.get("data"), Mapping):
        merged["data"] = {**recipe["data"], **given["data"]}
    for key, default_name in SECTION_NAMES.items():
        preset = recipe.get(key, {"name": default_name})
        section = {} if merged.get(key) is None else merged[key]
        if isinstance(section, Mapping):
            name = section.get("name", preset["name"])
            merged[key] = {**(preset if name == preset["name"] else {}), "name": name, **section}
    if chosen == "thesis":
        merged["model"] = normed_as_in_the_thesis(merged["model"])
    return merged


def apart_from_recipe(recipe: str, settings: Mapping[str, Any]) -> list[str]:
    """Keys of the recipe that a training has other values for, such as `epochs 12 instead of 50`.

    `settings` are those of `jobs.train`, as JSON has them.
    """
    found = []
    for key, preset in RECIPES[recipe].items():
        own = settings.get(key)
        parts = preset.items() if isinstance(preset, Mapping) else [("", preset)]
        for part, value in parts:
            has = own.get(part) if part and isinstance(own, Mapping) else own
            if has != value:
                found.append(f"{key}{f'.{part}' if part else ''} {_as_written(has)} instead of {_as_written(value)}")
                if part == "name":  # the other keys belong to another choice
                    break
    return found


def _as_written(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
