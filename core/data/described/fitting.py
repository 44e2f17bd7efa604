"""Which of the known formats recordings fit, by the names of their files and columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.data.described.description import RecordingFormat
from core.data.described.known_formats import described, names
from core.data.described.members import Member, Sheaf, sheaves
from core.data.described.path_pattern import PathPattern
from core.data.described.session_rows import rows_of_sensor
from core.data.described.sheet import sheets_of
from core.data.described.text_rows import Damage
from core.data.intake import rate_of
from core.ground.errors import DataError
from core.ground.plausible import times_problem

MOST_DAMAGED = 0.5
"""The share of the first lines that may be no readings."""
_NO_NAME = re.compile(r"\{[^{}]*\}|\.\w+$")


@dataclass(frozen=True)
class Fits:
    """The formats that fit.

    by_name: their names of files or columns are those of the recordings. by_shape: as many columns
    of numbers, but no name says that it is this one. `is_labelled` says whether the paths have the
    folders that say who, and what was done.
    """

    by_name: Sequence[str]
    by_shape: Sequence[str]
    is_labelled: bool


def fits(source: Path, members: Sequence[Member]) -> Fits:
    """Return the known formats that the files of a source fit."""
    formats = Fits((), (), True)
    for is_labelled in (True, False):
        reasons = {name: _fits(source, members, name, is_labelled) for name in names()}
        formats = Fits(
            [name for name, is_named in reasons.items() if is_named],
            [name for name, is_named in reasons.items() if is_named is False],
            is_labelled,
        )
        if formats.by_name or formats.by_shape:
            break
    return formats


def _fits(source: Path, members: Sequence[Member], name: str, is_labelled: bool) -> bool | None:
    """Return whether names, or the shape alone, are those of a format; None for neither."""
    form = described(name, source)
    try:
        recordings = sheaves(source, form, unlabelled=not is_labelled, members=members)
        if not all(_reads(recordings[0], form, sensor, is_labelled) for sensor in form.sensors):
            return None
    except DataError:
        return None
    if not form.text.given_names:
        return True
    patterns = [
        pattern for pattern in form.files if re.search(r"[A-Za-z]", _NO_NAME.sub("", pattern))
    ]
    return any(
        PathPattern(pattern).fits(member.name)
        for pattern in patterns
        for member in recordings[0].files.values()
    )


def _reads(sheaf: Sheaf, form: RecordingFormat, sensor: str | None, is_labelled: bool) -> bool:
    """Return whether the first readings of a sensor are those of the format. Raises DataError."""
    if form.text.given_names and form.array is None:
        sheets = sheets_of(sheaf.files[sensor])
        if not sheets or sheets[0].has_names:
            return False
    damage = Damage()
    rows = next(rows_of_sensor(sheaf, form, sensor, damage, not is_labelled))
    if len(rows.values) < 2 or damage.bad > MOST_DAMAGED * damage.lines:
        return False
    rate = rate_of(rows.times)
    is_plausible = rate is not None and times_problem(1 / rate) is None
    return form.time.column is None or is_plausible
