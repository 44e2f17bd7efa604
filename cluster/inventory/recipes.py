"""The two training recipes: values for the keys of `jobs.train` that the inventory leaves out.

`shipped` is what the fields of the schema default to: AdamW with a one-cycle schedule, label smoothing and a tight
clip, the recipe the design's single-model figures were measured with. `thesis` is what the 2019 thesis trained with.
"""

from collections.abc import Mapping
from typing import Any, Literal

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
"""Sections told apart by their key `name`, and the name each has when nobody gives one."""


def completed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of `jobs.train` as given, with those of the recipe where they are missing.

    Within `model`, `optimizer` and `schedule` the recipe's values only go with the recipe's own choice of `name`.
    Anything that is not as the schema wants it is left alone, for the schema to name.
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
