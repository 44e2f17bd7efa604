"""A long recording in a file, read in blocks as windows and faults, with bounded memory."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.data.filters import CausalFilters
from core.data.filters_in_blocks import TwoWayInBlocks
from core.data.resampling import FASTER
from core.data.signals import CAUSAL
from core.errors import DataError, reason_of
from recognise.first_look import looked_at
from recognise.lines import Block
from recognise.npz_recording import ARRAYS
from recognise.recordings import blocks_of, is_windows
from recognise.stream import InputFault, Settings, Stream, Window
from recognise.stream.stream import MOST_READINGS

MOST_SHOWN = 10
"""Bad lines that are kept for messages; all are counted."""


@dataclass
class ReadSoFar:
    """The progress of the reading."""

    share: float = 0.0
    """The part of the recording that was read, 0 to 1."""
    readings: int = 0
    bad_lines: int = 0
    """Lines that are no reading."""
    shown: list[str] = field(default_factory=list)
    note: str = ""
    """What a format allowed to leave out."""


class LongRecording:
    """A recording in one file, which `items` reads once from its beginning."""

    def __init__(
        self, name: str, settings: Settings, direction: str, format_name: str | None = None
    ) -> None:
        """`direction` is that of the filters, `two-way` or `causal`; others have none.

        Raises DataError for what cannot be labelled.
        """
        self.name, self.progress = name, ReadSoFar()
        self._direction = direction
        self._format_name = format_name
        if format_name is None:
            _refuse_other_files(name)
        hertz = looked_at(name, settings, format_name)
        is_faster = hertz > FASTER * settings.sampling_hz
        self.settings = replace(settings, source_hz=hertz if is_faster else None)

    def items(self) -> Iterator[Window | InputFault]:
        """Yield windows and faults in the order of the readings. Raises DataError."""
        stream = Stream(
            self.settings, CausalFilters if self._direction == CAUSAL else TwoWayInBlocks
        )
        for block in blocks_of(self.name, self._format_name, self.settings.signals):
            self._count(block)
            for start in range(0, len(block.readings), MOST_READINGS):
                rows = block.readings[start : start + MOST_READINGS]
                yield from stream.push_values(rows[:, 0], rows[:, 1:])
        yield from stream.end()

    def _count(self, block: Block) -> None:
        progress = self.progress
        progress.share = max(progress.share, block.share)
        progress.readings += len(block.readings)
        progress.bad_lines += len(block.problems)
        progress.note = block.note or progress.note
        room = MOST_SHOWN - len(progress.shown)
        progress.shown += [
            f"{self.name}:{number}: {reason}" for number, reason in block.problems[:room]
        ]


def _refuse_other_files(name: str) -> None:
    try:
        about = Path(name).stat()
    except (OSError, ValueError) as problem:
        reason = reason_of(problem)
        raise DataError(
            f"{name}: cannot be read ({reason}); name a recording with --data"
        ) from None
    if not stat.S_ISREG(about.st_mode):
        raise DataError(
            f"{name}: expected a file with a recording, got another kind; name one with --data"
        )
    if is_windows(name):
        raise DataError(
            f"{name}: expected a recording, {', '.join(ARRAYS)}, got an .npz without {ARRAYS[0]}; "
            "`python -m recognise` labels windows that are cut already"
        )
