"""Kinds that are names of formats: published sets, as their own figures count them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.data.archive import FolderTree
from core.data.batch import Batch, Examples
from core.data.dataset import HeldOut
from core.data.described import reader
from core.data.filters import NINE_CHANNELS
from core.data.given import Batches
from core.data.reader import Reader
from core.data.recordings import Cutting, Report


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
        """The files that decide the result: recordings and labels."""
        return tuple(name for name in names if name.startswith(Hapt.marker))

    @staticmethod
    def read(opened: Path | FolderTree, cutting: Cutting, report: Report) -> Examples:
        """Return the windows of the six activities. Raises DataError as `described` does."""
        known = {name: getattr(cutting, name) for name in (*Hapt.settings, "format")}
        examples = reader.read(opened, Cutting(seed=0, nine_channels=True, **known), report)
        held_out = examples.held_out
        return replace(
            examples,
            batches=_numbered(examples.batches, held_out.groups),
            held_out=HeldOut(note=held_out.note),
            signals=NINE_CHANNELS,
        )


def _numbered(batches: Iterator[Batch], people: Sequence[str]) -> Iterator[Batch]:
    """Return the batches with the set's own numbers of its people, such as 30 of `30`."""
    numbers = np.array(list(map(int, people)), np.int32)
    renumbered = (replace(batch, groups=numbers[batch.groups]) for batch in batches)
    return Batches(renumbered, getattr(batches, "rows", 0))
