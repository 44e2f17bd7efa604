"""Kinds that are names of formats: published sets, as their own figures count them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.data.archive import FolderTree, Tree
from core.data.batch import Batch, Examples
from core.data.dataset import HeldOut
from core.data.described import reader
from core.data.filters import NINE_CHANNELS
from core.data.given import Batches
from core.data.reader import Reader, open_set
from core.data.recordings import Cutting, Report
from core.data.table import ACTIVITIES, activity_labels, integers_of
from core.errors import DataError

ACTIVITY_NAMES = (
    *("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"),
    *("STAND_TO_SIT", "SIT_TO_STAND", "SIT_TO_LIE", "LIE_TO_SIT", "STAND_TO_LIE", "LIE_TO_STAND"),
)
TEST_PEOPLE = (2, 4, 9, 10, 12, 13, 18, 20, 24)
TEST_LIST = "Test/subject_id_test.txt"


class Hapt(Reader):
    """The set HAPT, with the nine channels."""

    name = "hapt"
    accepted = "the HAPT set as a zip or folder"
    is_what = (
        "the raw recordings of [Human Activities and Postural"
        " Transitions](https://archive.ics.uci.edu/dataset/341), zip or folder as published"
    )
    windows_are_cut = "here, any `window_steps` and `window_stride`"
    marker = "RawData/"
    suffix = None
    usual_names = ("HAPT Data Set.zip", "HAPT Data Set")
    settings = ("window_steps", "window_stride", "filters")

    @staticmethod
    def wanted(names: Sequence[str]) -> tuple[str, ...]:
        """The files that decide the result: recordings, labels, and what is refused."""
        lists = (ACTIVITIES, TEST_LIST)
        return tuple(name for name in names if name.startswith(Hapt.marker) or name in lists)

    @staticmethod
    def read(opened: Path | FolderTree, cutting: Cutting, report: Report) -> Examples:
        """Return the windows of the six activities. Raises DataError as `described` does."""
        if isinstance(opened, FolderTree):
            _refuse_other_lists(opened)
        else:
            with open_set(opened) as inside:
                if inside is not None:
                    _refuse_other_lists(inside[1])
        known = {name: getattr(cutting, name) for name in (*Hapt.settings, "format")}
        examples = reader.read(opened, Cutting(seed=0, nine_channels=True, **known), report)
        held_out = examples.held_out
        return replace(
            examples,
            batches=_numbered(examples.batches, held_out.groups),
            held_out=HeldOut(note=held_out.note),
            signals=NINE_CHANNELS,
        )


def _refuse_other_lists(tree: Tree) -> None:
    """Raise DataError where the set names other activities or test people than the published one.

    The format knows those of the published set alone, so another set would get wrong words.
    """
    names = tree.names()
    remedy = "describe a set of your own by a format.yaml with `like: hapt` (docs/data.md)"
    if ACTIVITIES in names:
        labels = activity_labels(tree)
        for number, (label, published) in enumerate(
            zip(labels, ACTIVITY_NAMES, strict=False), start=1
        ):
            if label != published:
                raise DataError(
                    f"{tree.where}: {ACTIVITIES}: expected '{number} {published}' as published, got"
                    f" {label:.60}; {remedy}"
                )
    if TEST_LIST in names:
        people = sorted(set(integers_of(tree, TEST_LIST, 1).ravel().tolist()))
        if people != list(TEST_PEOPLE):
            raise DataError(
                f"{tree.where}: {TEST_LIST}: expected the people {list(TEST_PEOPLE)} as published,"
                f" got {people!s:.60}; {remedy}"
            )


def _numbered(batches: Iterator[Batch], people: Sequence[str]) -> Iterator[Batch]:
    """Return the batches with the set's own numbers of its people, such as 30 of `30`."""
    numbers = np.array(list(map(int, people)), np.int32)
    renumbered = (replace(batch, groups=numbers[batch.groups]) for batch in batches)
    return Batches(renumbered, getattr(batches, "rows", 0))
