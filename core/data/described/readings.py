"""One recording of a format, without who and what, as the readings that get labels."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.described.channels import first_vectors, signals_of
from core.data.described.description import RecordingFormat
from core.data.described.members import Member, sheaves
from core.data.described.session_rows import rows_of
from core.data.described.text_rows import Damage
from core.data.filters import OF_NINE_CHANNELS, InputMapping, input_mapping, takes_nine
from core.data.signals import Signals
from core.ground.errors import DataError, UsageError

MOST_NAMED = 5


def readings(
    source: Path,
    form: RecordingFormat,
    model: Signals,
    damage: Damage,
    members: Iterable[Member] | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Yield readings of the one recording in `source`, (n, 1 + inputs).

    They are seconds, and what the model takes of a reading, in its order and units: for the nine
    channels the first acceleration with gravity and the first rotation. Sensors that it does not
    take are not read; `damage` counts what is left out. Folders that a pattern begins with, and
    that say one thing each, are not asked for. `members` are the files, where they are listed
    already. Raises DataError that names what is missing.
    """
    form, inputs = _of_model(source, form, model)
    recordings = sheaves(source, form, unlabelled=True, members=members)
    if len(recordings) > 1:
        named = ", ".join(sheaf.name for sheaf in recordings[:MOST_NAMED])
        raise DataError(
            f"{source}: expected one recording, got {len(recordings)}: {named:.200}; name one of"
            " them"
        )
    mixing = form.mixing
    for rows in rows_of(recordings[0], form, damage, unlabelled=True):
        values = inputs.applied_to(rows.values @ mixing)
        yield np.concatenate([rows.times[:, np.newaxis], values], axis=1)
    damage.refuse(form.bad_lines)


def _of_model(
    source: Path, form: RecordingFormat, model: Signals
) -> tuple[RecordingFormat, InputMapping]:
    """Return the format without sensors that the model does not take, and how its inputs follow."""
    if takes_nine(model):
        pair = first_vectors(source, form, "label it with another model")
        names = tuple(name for sensor in pair for name in sensor.channels)
        form = form.narrowed(names)
        places = tuple(form.channel_names.index(name) for name in names)
        return form, InputMapping(places, (1.0,) * len(OF_NINE_CHANNELS.channels))
    try:
        input_mapping(signals_of(form), model)
        form = form.narrowed(model.channels)
        return form, input_mapping(signals_of(form), model)
    except UsageError as problem:
        raise DataError(f"{source}: {problem}") from None
