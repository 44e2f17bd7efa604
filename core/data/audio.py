"""A folder of sounds by class, `.wav`.

They become float32 (samples, 1) from -1 to 1, of one length and one sample rate.
"""

import io
import struct
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.archive import FolderTree, one_line
from core.data.batch import Batch, Examples
from core.data.class_folders import (
    Filed,
    batch_of,
    filed,
    holds_classes,
    pieces_of,
    wanted_files,
)
from core.data.dataset import CLASSIFICATION
from core.data.given import Batches
from core.data.reader import Reader
from core.data.recordings import Cutting, Report
from core.data.signals import Signals
from core.errors import DataError

SUFFIXES = (".wav",)
LONGEST_SECONDS = 60.0
"""The longest clip without `clip_seconds`: one long file would pad all others."""
AT_ONCE = 512
_DAMAGE = (
    struct.error,
    ValueError,
    TypeError,
    EOFError,
    OSError,
    MemoryError,
    UnboundLocalError,
    IndexError,
    ZeroDivisionError,
    KeyError,
)
"""What SciPy raises over damaged files."""


def read(tree: FolderTree, cutting: Cutting, report: Report) -> Examples:
    """Read mono clips of one length.

    Channels are averaged, a longer clip loses its end, a shorter one ends in silence.

    Without `clip_seconds` every clip is as long as the longest. Raises DataError naming file and
    remedy.
    """
    labels, files = filed(tree, SUFFIXES)
    rate, first = _sound(tree, files[0].name)
    if cutting.clip_seconds is not None:
        samples = round(cutting.clip_seconds * rate)
    else:
        samples = len(first)
        longest = files[0].name
        for done, file in enumerate(files, start=1):
            length = len(_of_rate(tree, file.name, rate, files[0].name))
            samples, longest = max((samples, longest), (length, file.name))
            report("reading", done, len(files))
        if samples > LONGEST_SECONDS * rate:
            raise DataError(
                f"{tree.where}: {longest}: expected at most {LONGEST_SECONDS:g} s, got"
                f" {samples / rate:.1f}; set jobs.train.data.clip_seconds, which cuts and pads all"
            )
    if not samples:
        raise DataError(
            f"{tree.where}: expected clips of one sample or more, got none; set"
            " jobs.train.data.clip_seconds"
        )
    pieces = pieces_of(files, 4 * samples, AT_ONCE)
    batches = _batches(tree, pieces, samples, rate, files[0].name)
    return Examples(
        Batches(batches, len(files)),
        CLASSIFICATION,
        labels,
        standardized=True,
        signals=Signals(sampling_hz=float(rate)),
    )


def _batches(
    tree: FolderTree, pieces: Sequence[Sequence[Filed]], samples: int, rate: int, like: str
) -> Iterator[Batch]:
    for piece in pieces:
        clips = np.zeros((len(piece), samples, 1), np.float32)
        for row, file in enumerate(piece):
            sound = _of_rate(tree, file.name, rate, like)[:samples]
            clips[row, : len(sound), 0] = sound
        yield batch_of(clips, piece)


def _of_rate(tree: FolderTree, name: str, rate: int, like: str) -> NDArray[np.float32]:
    found, sound = _sound(tree, name)
    if found != rate:
        raise DataError(
            f"{tree.where}: {name}: expected {rate} samples a second as in {like}, got {found};"
            f" resample it, such as with `ffmpeg -i IN.wav -ar {rate} OUT.wav`"
        )
    return sound


def _sound(tree: FolderTree, name: str) -> tuple[int, NDArray[np.float32]]:
    """Samples a second, and mono samples, float32 (samples,), from -1 to 1."""
    from scipy.io import wavfile

    content = tree.read(name)
    where = f"{tree.where}: {name}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Chunks of players and cutters, beside the samples.
            warnings.filterwarnings(
                "ignore", "Chunk .non-data. not understood", wavfile.WavFileWarning
            )
            rate, samples = wavfile.read(io.BytesIO(content))
    except (*_DAMAGE, wavfile.WavFileWarning) as problem:
        said = one_line(problem)[:80] or type(problem).__name__
        raise DataError(
            f"{where}: damaged, or no uncompressed WAV ({said}); restore it, or convert it to PCM"
        ) from None
    if rate <= 0:
        raise DataError(
            f"{where}: expected a sample rate above 0, got {rate}; restore it from the original"
        )
    kind = samples.dtype
    if kind.kind == "u":
        values = (samples.astype(np.float32) - 128.0) / 128.0
    elif kind.kind == "i":
        values = samples.astype(np.float32) / float(-np.iinfo(kind).min)
    else:
        values = samples.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(
            f"{where}: expected finite samples, got {values[~np.isfinite(values)][0]}; repair or"
            " remove it"
        )
    if values.ndim == 1:
        mono: NDArray[np.float32] = values
    else:
        mono = values.mean(axis=1, dtype=np.float32)
    return int(rate), mono


class Audio(Reader):
    """A folder of sounds by class."""

    name = "audio"
    accepted = "a folder of .wav by class"
    is_what = (
        "[sounds by class](data-formats.md#sounds-by-class): `train/CLASS/*.wav` and"
        " `test/CLASS/*.wav`, or `CLASS/*.wav`"
    )
    windows_are_cut = "cut or padded to `clip_seconds`: (samples, 1)"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("clip_seconds",)
    wanted = staticmethod(wanted_files)
    read = staticmethod(read)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether the folder holds sounds by class."""
        return holds_classes(path, SUFFIXES)
