"""The section `data` of a training: which data, and how they are made into examples."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cluster.inventory.fields import Section, Text, invalid


def _listed(value: object) -> object:
    """One name, or several."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[Text, ...], BeforeValidator(_listed)]


class ColumnSettings(Section):
    """Which columns of a CSV or Parquet file are what."""

    target: Names = Field(
        (), description="what to predict, one column or a list; empty: the column `target`, `label`, `class` or `y`"
    )
    inputs: Names = Field((), description="what to predict it from; empty: all columns but those named here")
    categories: Names = Field((), description="inputs that are words even where they look like numbers")
    group: Text | None = Field(None, description="who or what a row belongs to; validation and test get whole groups")
    test: Text | None = Field(
        None, description="says `train` or `test`, or 0 or 1, of each row; null holds out a fifth for the test"
    )
    task: Literal["classification", "multilabel", "regression"] | None = Field(
        None,
        description="null: classification of words and whole numbers, multilabel of several columns of 0 and 1, "
        "regression of all else",
    )


def _size(value: object) -> object:
    """A side or [height, width]; checked here so that a wrong value is one problem, not one a branch."""
    numbers = (value, value) if type(value) is int else value
    sides = isinstance(numbers, tuple) and len(numbers) == 2 and all(type(n) is int and 1 <= n <= 4096 for n in numbers)
    if value is not None and not sides:
        raise invalid("expected pixels, or [height, width], from 1 to 4096", "write e.g. 64 or [48, 64]")
    return numbers


ImageSize = Annotated[tuple[int, int] | None, BeforeValidator(_size)]


class DataSettings(Section):
    """Which data, and how they are made into examples."""

    source: Text | None = Field(
        None,
        description="a zip, a folder, an .npz, .csv or .parquet file, or `synthetic`; null looks in `--data`, "
        "`$PSCLUSTER_DATA`, `../shared/data`, the user's cache folder, and falls back to `synthetic`",
    )
    window_steps: int = Field(128, ge=8, le=4096, description="samples of a window; 128 are 2.56 s at 50 Hz")
    window_stride: int = Field(64, ge=1, le=4096, description="samples from one window's start to the next one's")
    image_size: ImageSize = Field(
        None, description="pixels of a side, or [height, width], that images are resized to; null keeps theirs"
    )
    image_channels: Literal[1, 3] = Field(3, description="3 reads images as RGB, 1 as shades of grey")
    clip_seconds: float | None = Field(
        None, gt=0.0, le=600.0, description="what sounds are cut or padded to; null takes the longest one's length"
    )
    columns: ColumnSettings = ColumnSettings()
    groups: Literal["user", "device"] = Field(
        "user", description="of `hhar`: what stays whole in validation, test and cross-validation"
    )
    split: Literal["groups", "random"] = Field(
        "groups",
        description="of `hhar`: the test gets a fifth of the groups, whole; or a fifth of the windows at `random`, "
        "which is a leak: overlapping windows of one person are on both sides",
    )
    null_class: bool = Field(
        True, description="of `hhar`: readings without an activity, `null`, are a class; false leaves them out"
    )
    filters: Literal["two-way", "causal"] = Field(
        "two-way",
        description="of `hapt` and `synthetic`: whether recordings are filtered forwards and backwards, or forwards "
        "only, as `python -m recognise` has to filter a live stream",
    )

    def options(self) -> dict[str, Any]:
        """What readers know besides windows, by name, as JSON has it."""
        found: dict[str, Any] = self.model_dump(mode="json", exclude={"source", "window_steps", "window_stride"})
        return found
