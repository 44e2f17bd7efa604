"""The section `data` of a training: which data, and how they are made into examples."""

from typing import Any, Literal

from pydantic import Field

from core.inventory.fields import Section, Text

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
        description="what an iterator of data() of an app may bring before it is refused",
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
