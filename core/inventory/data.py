"""The section `data` of a training: which data, and how they are made into examples."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from core.documents.section import Names
from core.inventory.fields import Section, Text, invalid


class ColumnSettings(Section):
    """Which columns of a CSV or Parquet file are what."""

    target: Names = Field(
        (),
        description=(
            "what to predict, one column or a list; empty: the column `target`, `label`, `class`"
            " or `y`"
        ),
    )
    inputs: Names = Field(
        (), description="what to predict it from; empty: all columns but those named here"
    )
    categories: Names = Field(
        (), description="inputs that are words even where they look like numbers"
    )
    group: Text | None = Field(
        None, description="who or what a row belongs to; validation and test get whole groups"
    )
    test: Text | None = Field(
        None,
        description=(
            "says `train` or `test`, or 0 or 1, of each row; null holds out a fifth for the test"
        ),
    )
    task: Literal["classification", "multilabel", "regression"] | None = Field(
        None,
        description=(
            "null: classification of words and whole numbers, multilabel of several columns of 0"
            " and 1, regression of all else"
        ),
    )


def _size(value: object) -> object:
    """Check a side or [height, width].

    A wrong value is one problem here, not one a branch.
    """
    numbers = (value, value) if type(value) is int else value
    sides = (
        isinstance(numbers, tuple)
        and len(numbers) == 2
        and all(type(n) is int and 1 <= n <= 4096 for n in numbers)
    )
    if value is not None and not sides:
        raise invalid(
            "expected pixels, or [height, width], from 1 to 4096", "write e.g. 64 or [48, 64]"
        )
    return numbers


ImageSize = Annotated[tuple[int, int] | None, BeforeValidator(_size)]


BESIDE = {"source", "window_steps", "window_stride", "most_gigabytes"}
"""Settings that are no options of a reader."""


class DataSettings(Section):
    """Which data, and how they are made into examples."""

    source: Text | None = Field(
        None,
        description=(
            "a zip, a folder, an .npz, .csv or .parquet file, or `synthetic`; null looks in"
            " `--data`, `$PSCLUSTER_DATA`, `../shared/data`, the user's cache folder, and falls"
            " back to `synthetic`"
        ),
    )
    window_steps: int = Field(
        128, ge=8, le=4096, description="samples of a window; 128 are 2.56 s at 50 Hz"
    )
    window_stride: int = Field(
        64, ge=1, le=4096, description="samples from one window's start to the next one's"
    )
    image_size: ImageSize = Field(
        None,
        description=(
            "pixels of a side, or [height, width], that images are resized to; null keeps theirs"
        ),
    )
    image_channels: Literal[1, 3] = Field(
        3, description="3 reads images as RGB, 1 as shades of grey"
    )
    clip_seconds: float | None = Field(
        None,
        gt=0.0,
        le=600.0,
        description="what sounds are cut or padded to; null takes the longest one's length",
    )
    columns: ColumnSettings = ColumnSettings()
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
    split: Literal["groups", "random"] = Field(
        "groups",
        description=(
            "of `hhar` and `described`: the test gets a fifth of the groups, whole; or a fifth of"
            " the windows at `random`, which is a leak: overlapping windows of one person are on"
            " both sides"
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
        description="what an iterator of data() of an app may bring before it is refused",
    )
    filters: Literal["two-way", "causal"] = Field(
        "two-way",
        description=(
            "of `hapt`, `synthetic` and the nine channels of `described`: whether recordings are"
            " filtered forwards and backwards, or forwards only, as `python -m recognise` has to"
            " filter a live stream"
        ),
    )

    def options(self) -> dict[str, Any]:
        """What readers know besides windows, by name, as JSON has it."""
        found: dict[str, Any] = self.model_dump(mode="json", exclude=BESIDE)
        return found
