"""Several described sets as one, to train on some and be tested on another.

A file names the sets and how each is written. The windows have the channels that all sets have, by
name and unit, at one rate, and the classes that all have, by the file's words. A set is the group
of its windows: one is the test, and a cross-validation leaves one of the others out at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from core.data.archive import digest, file_digest, tree_of
from core.data.batch import Examples
from core.data.described.description import ChannelForm, RecordingFormat
from core.data.described.known_formats import described, document, validated
from core.data.described.reader import CutSet, counts_of, examples_of_cuts, gathered
from core.data.described.series import WindowChannels, channels_of_windows
from core.data.recordings import Cutting, Report, check_window, one_class, silent
from core.data.source import Reader
from core.data.windows import WholeGroups
from core.documents.section import Names, Section, Text, invalid
from core.ground.errors import DataError

SUFFIXES = (".yaml", ".yml")
MOST_SETS = 64


class SetForm(Section):
    """One of the sets."""

    data: Text = Field(description="a file, zip or folder; from the folder of the file of sets")
    format: Text = Field(description="how it is written: a known format, or a YAML file")
    channels: dict[str, str] = Field({}, description="what its channels are called in all sets")
    labels: dict[str, str | None] = Field(
        {}, description="what its labels are called in all sets; null leaves one out"
    )


class SetsForm(Section):
    """The file."""

    hertz: float = Field(ge=1.0, le=1000.0, description="the rate of all windows")
    channels: Names = Field((), description="those of the windows; empty: all that all sets have")
    sets: dict[str, SetForm] = Field(description="by a name")

    @model_validator(mode="after")
    def _several(self) -> "SetsForm":
        if not 2 <= len(self.sets) <= MOST_SETS:
            raise invalid(f"expected 2 to {MOST_SETS} sets", "name others, or train on one alone")
        return self


def described_sets(path: Path) -> Mapping[str, Any]:
    """Return what the file says, with the format and the digest of each set, as JSON has it.

    Raises DataError naming file, line and key.
    """
    value, lines = document(path)
    form = validated(path, value, lines, SetsForm)
    sets_document: dict[str, Any] = form.model_dump(mode="json")
    for name, set_form in form.sets.items():
        data = path.parent / Path(set_form.data).expanduser()
        if not data.exists():
            raise DataError(f"{path}: sets.{name}.data: no such file or folder: {data}")
        format_name = set_form.format
        if format_name.endswith(SUFFIXES):
            format_name = str(path.parent / format_name)
        sets_document["sets"][name]["format"] = described(format_name, data).model_dump(
            mode="json", by_alias=True
        )
        if data.is_dir():
            tree = tree_of(data)
            sets_document["sets"][name]["sha256"] = digest(tree, tree.names(), silent)
        else:
            sets_document["sets"][name]["sha256"] = file_digest(data)
    return sets_document


def read_sets(path: Path, cutting: Cutting, report: Report) -> Examples:
    """Return the windows that all sets have in common, float32 (window_steps, channels).

    Raises DataError naming set, file, line and remedy.
    """
    check_window(cutting)
    sets_document = cutting.format
    assert sets_document is not None
    cutting = replace(cutting, sampling_hz=sets_document["hertz"])
    forms = {name: _renamed(set_document) for name, set_document in sets_document["sets"].items()}
    names = _common_channels(path, forms, sets_document["channels"])
    cut_sets = []
    window_channels: WindowChannels | None = None
    for name, set_document in sets_document["sets"].items():
        form = _with_channels(forms[name], names)
        data = path.parent / Path(set_document["data"]).expanduser()
        window_channels = channels_of_windows(data, form, cutting)
        cuts, recordings = gathered(data, form, cutting, window_channels, report)
        label_names = set_document["labels"]
        classes_of_labels = [label_names.get(label, label) for label in recordings.labels]
        cut_sets.append(CutSet(cuts, classes_of_labels, name))
    classes = _common_classes(path, cut_sets)
    counted = counts_of(cut_sets, classes, ("set",))
    if cutting.test_set not in (None, *forms):
        raise DataError(
            f"{path}: jobs.train.data.test_set: expected one of {', '.join(forms)}, got"
            f" {cutting.test_set!r:.60}"
        )
    test = WholeGroups(
        path, counted, "set", () if cutting.test_set is None else (cutting.test_set,)
    )
    assert window_channels is not None
    return examples_of_cuts(cut_sets, counted, test, window_channels.signals)


def _renamed(set_document: Mapping[str, Any]) -> RecordingFormat:
    """Return a set's format with its channels called as in all sets."""
    form = RecordingFormat.of_json(set_document["format"])
    names = set_document["channels"]
    channels = tuple(
        channel.model_copy(
            update={
                "name": names.get(channel.name, channel.name),
                "added_to": names.get(channel.added_to, channel.added_to),
            }
        )
        for channel in form.channels
    )
    return form.model_copy(update={"channels": channels})


def _kind(channel: ChannelForm, form: RecordingFormat) -> tuple[str, int, bool]:
    """Return what two channels of one name have to have in common."""
    unit = form.units[form.channel_names.index(channel.names[0])]
    return unit, len(channel.names), channel.gravity or unit != "g"


def _common_channels(
    path: Path, forms: Mapping[str, RecordingFormat], requested_names: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of the channels that all sets have. Raises DataError where none is."""
    kinds = [
        {channel.name: _kind(channel, form) for channel in form.in_windows}
        for form in forms.values()
    ]
    names = [name for name in kinds[0] if all(name in set_kinds for set_kinds in kinds)]
    for name in requested_names or names:
        kind_by_set = {
            set_name: set_kinds.get(name) for set_name, set_kinds in zip(forms, kinds, strict=True)
        }
        if None in kind_by_set.values() or len(set(kind_by_set.values())) > 1:
            actual_units = "; ".join(
                f"{set_name}: {'none' if kind is None else kind[0]}"
                f"{'' if kind is None or kind[2] else ' without gravity'}"
                for set_name, kind in kind_by_set.items()
            )
            raise DataError(
                f"{path}: channels: expected {name!r:.60} of one unit in all sets, got"
                f" {actual_units}; give this name to another channel, or leave it out"
            )
    if not names:
        actual_channels = "; ".join(
            f"{name}: {', '.join(set_kinds)}" for name, set_kinds in zip(forms, kinds, strict=True)
        )
        raise DataError(
            f"{path}: no channel is in all sets ({actual_channels:.300}); write sets.NAME.channels,"
            " what a set's own are called here"
        )
    return tuple(requested_names or names)


def _with_channels(form: RecordingFormat, names: Sequence[str]) -> RecordingFormat:
    """Return a format with these channels alone, in this order."""
    channels = [channel for name in names for channel in form.in_windows if channel.name == name]
    channels += [channel for channel in form.channels if channel.added_to in names]
    return form.model_copy(update={"channels": tuple(channels)})


def _common_classes(path: Path, cut_sets: Sequence[CutSet]) -> tuple[str, ...]:
    """Return the classes of which every set has windows. Raises DataError for less than two."""
    classes_by_set = {
        cut_set.name: {cut_set.classes[label] for _, label in cut_set.cuts.counts} - {None}
        for cut_set in cut_sets
    }
    common: set[str | None] = reduce(set.intersection, classes_by_set.values())
    classes = tuple(sorted(filter(None, common)))
    if len(classes) < 2:
        actual_classes = "; ".join(
            f"{name}: {', '.join(sorted(filter(None, labels))) or 'none'}"
            for name, labels in classes_by_set.items()
        )
        raise DataError(
            f"{path}: {one_class(classes)}, or write sets.NAME.labels; the sets have"
            f" {actual_classes:.600}"
        )
    return classes


class Sets(Reader):
    """Several sets, one of which is the test."""

    name = "sets"
    accepted = "a .yaml of sets"
    is_what = (
        "[several described sets](recordings.md#across-sets): a YAML file that names them; one is"
        " the test, or the others leave one out at a time"
    )
    windows_are_cut = "here: as of `described`, with the channels and classes that all sets have"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("window_steps", "window_stride", "format", "label_share", "bad_lines", "test_set")
    read = staticmethod(read_sets)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether it is a YAML file with a line `sets:`."""
        if not path.is_file() or path.suffix.lower() not in SUFFIXES:
            return False
        with path.open("rb") as stream:
            return any(line.startswith(b"sets:") for line in stream.readlines(64 * 1024))
