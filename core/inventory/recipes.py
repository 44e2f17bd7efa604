"""Recipes of papers.

They are the keys of `jobs.train` that go with `recipe`, as far as a person leaves them out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from core.documents.yaml_document import parse

RecipeName = Literal["shipped", "unseen", "thesis", "kimm", "kth"]

_FILE = Path(__file__).with_suffix(".yaml")
RECIPES: Mapping[str, Mapping[str, Any]] = parse(
    _FILE.read_text(encoding="utf-8"), _FILE.name
).value
"""The keys of each recipe; the file says where they are from."""

OF_THE_NETWORK = ("model", "augment")
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
