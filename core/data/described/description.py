"""How recordings are written: the schema of a format's YAML file.

A path pattern is matched with the end of a file's path, which begins with the name of what a person
gave; a zip in it is one more folder. `*` stands for a part of a name, `**/` for folders, and
`{label}`, `{person}`, `{session}` and `{sensor}` for a part of a name that says just that. `{any}`
is a part of a name that differs between the files of one recording, `{number}` are digits.
`{label!_}` is a label without `_`, and so on: a path that can be read in two ways is refused.
"""

import math
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from core.data.arrays import Numbers
from core.data.described.moments import TimeForm
from core.documents.section import Names, Section, Text, invalid
from core.ground.plausible import ACCELERATION_UNITS, ROTATION_UNITS

NONE = "none"
UNITS: dict[str, tuple[str, float]] = {
    **{unit: ("g", factor) for unit, factor in ACCELERATION_UNITS.items()},
    "mg": ("g", 1e-3),
    **{unit: ("rad/s", factor) for unit, factor in ROTATION_UNITS.items()},
    "uT": ("uT", 1.0),
    "mT": ("uT", 1e3),
    "gauss": ("uT", 100.0),
    NONE: (NONE, 1.0),
}
"""The unit of the windows, and the factor to it, by unit of a file."""
AXES = "xyz"
WORD = re.compile(r"\{(\w+)(?:![^{}]+)?\}")
APART = ("sensor", "any")
PLACED = ("label", "person", "session", *APART, "number")
"""Names of a part of a path; `APART` differs between the files of one recording."""

Short = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Mark = Annotated[str, StringConstraints(max_length=8)]


class TextForm(Section):
    """How the lines of a file are written."""

    separator: Literal[",", ";", "|", "tab", "space"] = Field(
        ",", description="between values; `space` is any number of blanks or tabs"
    )
    decimal: Literal[".", ","] = Field(".", description="the decimal sign")
    quote: Literal['"', "'"] = Field('"', description="around a value that has separators")
    comment: Mark = Field("", description="mark at the start of a line that is left out")
    end: Mark = Field("", description="a mark at the end of each reading, besides the line's end")
    names: Names = Field(
        (), description="of the columns, where a file may have no line of these names; else empty"
    )
    columns: int | None = Field(
        None, ge=1, le=1000, description="number of columns, called 1, 2, 3 ...; instead of `names`"
    )
    skip_lines: int = Field(0, ge=0, le=1000, description="lines to skip at the start")
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] = Field(
        "utf-8", description="of the text"
    )
    sensor: Text | None = Field(
        None, description="the column that names the sensor of a line, as `sensor` of `channels`"
    )
    in_turn: bool = Field(False, description="whether a line may lack the values of a `sensor`")

    @property
    def given_names(self) -> tuple[str, ...]:
        """The names of the columns, as the format has them; empty where the file has them."""
        if self.columns is not None:
            return tuple(map(str, range(1, self.columns + 1)))
        return self.names


class JsonForm(Section):
    """Where readings stand in a JSON document."""

    rows: Mark | Short = Field(
        "", description="the keys down to the list of readings, with dots; empty: the document"
    )
    lines: bool = Field(False, description="whether each line is a document, which is a reading")
    names: Short | None = Field(
        None,
        description="the keys down to the names of a reading's values; null: a reading has keys",
    )
    interval_ms: Short | None = Field(
        None, description="the keys down to the milliseconds between two readings"
    )
    sensor: Short | None = Field(
        None, description="the key of a reading's sensor, instead of a path"
    )


class ChannelForm(Section):
    """One channel, or the three axes of a sensor."""

    name: Short = Field(description="of the channel; three get `_x`, `_y` and `_z` behind it")
    columns: Names = Field(description="its column, or those of x, y and z")
    unit: Literal["g", "m/s2", "mg", "rad/s", "deg/s", "uT", "mT", "gauss", "none"] = Field(
        description="in the file; windows have g, rad/s and uT"
    )
    factor: float = Field(1.0, gt=0.0, description="size of one count of the file, in `unit`")
    sign: Literal[1, -1] = Field(1, description="-1 turns the channel, or all three axes")
    sensor: Text | None = Field(
        None,
        description="the word at `{sensor}` in its file's path, if sensors have files of their own",
    )
    gravity: bool = Field(True, description="whether an acceleration includes gravity's")
    added_to: Short | None = Field(
        None,
        description=(
            "the name of the channels that these are added to, as gravity to an acceleration"
            " without it; then these are no channels of their own"
        ),
    )

    @model_validator(mode="after")
    def _one_or_three(self) -> "ChannelForm":
        if len(self.columns) not in (1, 3):
            raise invalid("expected one column, or those of x, y and z", "describe others apart")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its channels."""
        if len(self.columns) == 1:
            return (self.name,)
        return tuple(f"{self.name}_{axis}" for axis in AXES)


class IntervalForm(Section):
    """A file that says from when to when something was done."""

    file: Short = Field(
        description=(
            "its path pattern. It is of the person and session that the path or a column says, else"
            " of the recordings in its folder"
        )
    )
    text: TextForm = Field(default_factory=TextForm)
    begin: Names = Field(description="the column of the first moment, or those of date and time")
    end: Names | None = Field(
        None, description="the column of the last one; null: up to the next begin"
    )
    unit: Literal["s", "ms", "us", "ns", "iso", "rows"] = Field(
        "s", description="of both; `rows` count the readings from 1, both included"
    )
    pattern: Text | None = Field(
        None, description="form of both moments, as in `time`; then without `unit`"
    )
    shared: bool = Field(
        False,
        description="whether recordings were made at the same time, such as on two wrists",
    )
    label: Text = Field(description="the column of the label")
    person: Text | None = Field(None, description="the column of the person")
    session: Text | None = Field(None, description="the column of the session")


class LabelForm(Section):
    """What was done."""

    column: Text | None = Field(None, description="null: `{label}` of a file's path")
    intervals: IntervalForm | None = Field(
        None, description="a file of intervals and their labels; readings outside are left out"
    )
    words: dict[str, str | None] = Field(
        {},
        description=(
            "what a word of the file means; null leaves its readings out. Without any, a word is"
            " its own class; with some, others are refused"
        ),
    )


class WhoForm(Section):
    """Whose readings they are, or of which session."""

    column: Text | None = Field(None, description="null: `{person}` or `{session}` of the path")
    name: Text | None = Field(None, description="the name, if no path has one")


class AboutForm(Section):
    """What a recording says of its device, beside its readings."""

    sensor: Text = Field(description="the sensor that names the device, as `sensor` of `channels`")
    turned: Names = Field(
        description="KEY=WORD of a device whose `channels` have the opposite sign"
    )
    unless: Names = Field((), description="KEY=WORD of a device whose `channels` keep their sign")
    channels: Names = Field(description="the names of these channels")


class RecordingFormat(Section):
    """The description of recordings."""

    like: Text | None = Field(
        None, description="a known format that gives the sections left out here"
    )
    title: Text = Field("own recordings", description="what these recordings are")
    origin: Text | None = Field(None, description="where the format is published")
    licence: Text | None = Field(None, description="of published recordings")
    files: Names = Field(("*",), description="path patterns of the files with readings")
    anchored: bool = Field(
        False, description="whether `files` begin in one folder, below which all of them lie"
    )
    text: TextForm = Field(default_factory=TextForm)
    json_: JsonForm | None = Field(None, alias="json")
    sheets: bool = Field(
        False,
        description=(
            "whether files are Excel's (.xls) with a sheet of each sensor, named as `sensor` of"
            " its channels"
        ),
    )
    array: Short | None = Field(
        None,
        description=(
            "the array (readings, columns) in a MATLAB file or an .npz; its columns are 1, 2, 3"
        ),
    )
    missing: tuple[str, ...] = Field(
        ("", "NaN", "nan", "NA", "null"), description="words for a missing value"
    )
    time: TimeForm = Field(default_factory=TimeForm)
    channels: tuple[ChannelForm, ...] = Field(min_length=1, max_length=64)
    about: AboutForm | None = Field(None, description="null: the device is unknown")
    label: LabelForm = Field(default_factory=LabelForm)
    hints: dict[str, str] = Field(
        {},
        exclude=True,
        description="by path pattern of a file with labels: how to use it",
    )
    person: WhoForm = Field(default_factory=WhoForm)
    session: WhoForm = Field(default_factory=WhoForm)
    as_recorded: bool = Field(
        False,
        description=(
            "whether windows have neighbouring readings as they are: not resampled, in units of the"
            " file's, without a longer pause or step back. `session` is the device then"
        ),
    )
    test_people: Annotated[tuple[str, ...], BeforeValidator(lambda value: _words(value))] = Field(
        (), description="people of the test; empty: a fifth of all people"
    )
    bad_lines: float = Field(
        0.0, ge=0.0, lt=0.5, description="the share of lines that may be damaged"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> "RecordingFormat":
        """Refuse a description that leaves something open, or a pattern of other words."""
        placed = [set(WORD.findall(pattern)) for pattern in self.files]
        for path_words in placed:
            if path_words - set(PLACED):
                raise invalid(
                    f"a path says {', '.join(PLACED)}, got {min(path_words - set(PLACED))!r:.40}",
                    "write one of these in braces",
                )
        everywhere = set.intersection(*placed)
        for name, how, keys in (
            ("label", self.label.column or self.label.intervals, "label.column"),
            ("person", self.person.column or self.person.name, "person.column or person.name"),
        ):
            if how is None and name not in everywhere:
                raise invalid(
                    f"nothing says the {name} of a reading",
                    f"write {keys}, or {{{name}}} in each pattern of files",
                )
        intervals = self.label.intervals
        if intervals is not None and intervals.unit == "rows" and self.time.column is not None:
            raise invalid("rows of readings with times", "give intervals as times, too")
        is_in_document = self.json_ is not None and self.json_.interval_ms
        if self.time.column is None and self.time.hertz is None and not is_in_document:
            raise invalid("nothing says when a reading was made", "write time.column or time.hertz")
        is_said = "sensor" in everywhere or self.has_all_sensors
        if any(channel.sensor is not None for channel in self.channels) != is_said:
            raise invalid(
                "either every sensor has files of its own, or none",
                "write {sensor} in files and `sensor` of each channel, or neither",
            )
        names = self.channel_names
        if len(set(names)) < len(names):
            raise invalid("two channels of one name", "rename one")
        for channel in self.channels:
            alike = (channel.added_to, UNITS[channel.unit][0], len(channel.names))
            targets = [
                (target.name, UNITS[target.unit][0], len(target.names))
                for target in self.in_windows
            ]
            if channel.added_to is not None and alike not in targets:
                raise invalid(
                    f"{channel.name:.40} is added to other channels than there are",
                    "name channels of the same number and kind of unit",
                )
        return self

    @model_validator(mode="after")
    def _is_recorded(self) -> "RecordingFormat":
        """Refuse what would change readings that stay as they were recorded."""
        if self.as_recorded and (
            self.time.column is None
            or self.time.longest_gap_seconds is None
            or any(
                channel.unit != NONE or channel.added_to or channel.factor * channel.sign != 1.0
                for channel in self.channels
            )
        ):
            raise invalid(
                "as_recorded keeps readings as they are",
                "write time.column and time.longest_gap_seconds, `unit: none` of each channel,"
                " and no added_to, factor or sign",
            )
        return self

    @property
    def has_all_sensors(self) -> bool:
        """Whether a file has the readings of all sensors."""
        is_said = self.text.sensor is not None or self.text.in_turn
        return self.sheets or is_said or (self.json_ is not None and self.json_.sensor is not None)

    @property
    def in_windows(self) -> tuple[ChannelForm, ...]:
        """The channels of the windows: all but those added to others."""
        return tuple(channel for channel in self.channels if channel.added_to is None)

    def narrowed(self, names: Collection[str]) -> "RecordingFormat":
        """Return the format with the channels of these names alone, and what is added to them."""
        remaining = {
            channel.name for channel in self.in_windows if not set(names).isdisjoint(channel.names)
        }
        channels = [
            channel for channel in self.channels if (channel.added_to or channel.name) in remaining
        ]
        return self.model_copy(update={"channels": tuple(channels)})

    @classmethod
    def of_json(cls, document: Any) -> "RecordingFormat":
        """Return the format whose `model_dump` this is, as JSON has it: with lists for tuples."""
        return cls.model_validate(document, strict=False)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The channels of the windows, in their order."""
        return tuple(name for channel in self.in_windows for name in channel.names)

    @property
    def units(self) -> tuple[str, ...]:
        """The unit of each channel of the windows."""
        return tuple(UNITS[channel.unit][0] for channel in self.in_windows for _ in channel.names)

    @property
    def mixing(self) -> Numbers:
        """The factors from columns to channels of the windows, (columns, channels)."""
        names = self.channel_names
        columns = [(channel, name) for channel in self.channels for name in channel.names]
        matrix = np.zeros((len(columns), len(names)))
        for row, (channel, name) in enumerate(columns):
            if channel.added_to is not None:
                target = next(
                    candidate for candidate in self.in_windows if candidate.name == channel.added_to
                )
                name = target.names[channel.names.index(name)]
            matrix[row, names.index(name)] = UNITS[channel.unit][1] * channel.factor * channel.sign
        return matrix

    def class_of(self, word: str) -> str | None:
        """Return the class that a word means, empty where it is left out; None if unknown."""
        if word in self.missing:
            return ""
        if self.label.words and word not in self.label.words:
            return None
        return self.label.words.get(word, word) or ""

    @property
    def sensors(self) -> tuple[str | None, ...]:
        """The sensors with files of their own, each once; (None,) where files have all."""
        return tuple(dict.fromkeys(channel.sensor for channel in self.channels))

    @property
    def files_of(self) -> tuple[str | None, ...]:
        """The sensors whose files are read, with that about the device."""
        return (*self.sensors, *([self.about.sensor] if self.about else []))

    def longest_gap(self, hertz: float) -> float:
        """Return the seconds of the longest pause within windows of this rate."""
        return self.time.longest_gap_seconds or max(0.25, 5.0 / hertz)

    def largest(self) -> tuple[float, ...]:
        """Return the largest size of each channel's values: without a unit any."""
        return tuple(math.inf if unit == NONE else 1e4 for unit in self.units)


def _words(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(str, value))
    return value
