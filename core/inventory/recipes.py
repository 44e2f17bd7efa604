"""Recipes of papers.

They are the keys of `jobs.train` that go with `recipe`, as far as a person leaves them out.
"""

from collections.abc import Mapping
from typing import Any, Literal

UNSEEN: Mapping[str, Any] = {
    "model": {"name": "hybrid", "body": "residual", "hidden": 32, "instance_norm": "append"},
    "epochs": 12,
    "augment": {"rotation_degrees": 15.0, "time_warp": 0.2},
}
"""The best network for people of whom there are no recordings, by cross-validation
(docs/results.md). An app's model takes the place of the network and its augmentation."""

OF_THE_NETWORK = ("model", "augment")
"""Keys of a recipe that an app's own model does without."""

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
"""The printed configuration of the thesis (`experiments/tables/papers/`)."""

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
"""Kimm's printed code (`experiments/tables/papers/`); its comparison of devices has batches of
128."""

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
"""What Sozinov and Hammar published.

Network, window, batch and epochs are from their slides; stride, optimizer, rate and L2, which the
slides leave out, from their repository. Its updates are not slowed down for
being stale, and gradients not cut. The split stays by people; theirs was `split: random`."""


def normed_as_in_the_thesis(model: Any) -> Any:
    """Return the section `model` with batch norm where the thesis has it.

    It stands behind residual cells, not in plain layers.
    """
    if not isinstance(model, Mapping) or model.get("name") != "thesis" or "batch_norm" in model:
        return model
    cells = model.get("n_layers_in_highway", 0)
    return {**model, "batch_norm": isinstance(cells, int) and cells > 0}


RecipeName = Literal["shipped", "unseen", "thesis", "kimm", "kth"]

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "shipped": {},
    "unseen": UNSEEN,
    "thesis": THESIS,
    "kimm": KIMM,
    "kth": KTH,
}

SECTION_NAMES: Mapping[str, str] = {
    "model": "thesis",
    "optimizer": "adamw",
    "schedule": "one_cycle",
}
"""Sections that their key `name` distinguishes, with the default name of each."""


def completed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of `jobs.train` as given, with those of the recipe where they are missing.

    Within `model`, `optimizer` and `schedule` the recipe's values only go with the recipe's own
    choice of `name`; within `data` they stand beside the given ones. Wrong values stay as they are:
    the schema reports them.
    """
    chosen = given.get("recipe", "shipped")
    if isinstance(chosen, str):
        recipe = RECIPES.get(chosen, {})
    else:
        recipe = {}
    if chosen == "unseen" and given.get("app") is not None:
        recipe = {key: value for key, value in recipe.items() if key not in OF_THE_NETWORK}
    merged = {**recipe, **given}
    if "data" in recipe and isinstance(given.get("data"), Mapping):
        merged["data"] = {**recipe["data"], **given["data"]}
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
    found = []
    for key, preset in RECIPES[recipe].items():
        if settings.get("app") is not None and key in OF_THE_NETWORK:
            continue
        own = settings.get(key)
        parts = preset.items() if isinstance(preset, Mapping) else [("", preset)]
        for part, value in parts:
            if part and isinstance(own, Mapping):
                has = own.get(part)
            else:
                has = own
            if has != value:
                found.append(
                    f"{key}{f'.{part}' if part else ''} {_as_written(has)} instead of"
                    f" {_as_written(value)}"
                )
                if part == "name":  # the other keys belong to another choice
                    break
    return found


def _as_written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
