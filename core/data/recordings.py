"""Windows as every reader returns them, how they are cut, and what names and numbers may be.

Names that a person reads as one, such as `01` and `1`, are refused; so are labels that are missing
values, and those that are probably something else. Of words that look like numbers, an error says
why they are none.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from core.data.arrays import Integers, Singles
from core.data.signals import TWO_WAY, UNKNOWN, Signals
from core.ground.errors import DataError

_NOT_FINITE = {"nan", "inf", "infinity"}
_NUMBER = r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?"
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?")
_COMMA = re.compile(_NUMBER)
_MARK = "[%°$€£]"
_UNIT = r"m?g|[kµu]?m|[mµun]?s|m/s(2|²|\^2)|(rad|deg|°)/s|[kM]?Hz|[µu]?T|bpm|°C"
_WITH_UNIT = re.compile(rf"[$€£] ?{_NUMBER}|{_NUMBER} ?{_MARK}|[+-]?(\d+[.,]\d+ ?|\d+ )({_UNIT})")
"""Number with a unit; letters behind a whole one need a blank: `4g` may be a word."""
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")


def no_number(word: str) -> str | None:
    """Return why a word that looks like a number is none; None for another word."""
    if (stem := word.rstrip(";,|")) != word and (is_number(stem) or _COMMA.fullmatch(stem)):
        return f"a {word[-1]!r} at its end; remove it from each line"
    if "," in word and _THOUSANDS.fullmatch(word) and _COMMA.fullmatch(word):
        return (
            "its comma is decimal or separates thousands; save it with decimal points and without"
            " separators"
        )
    if "," in word and _COMMA.fullmatch(word):
        return "the commas are decimal; save it with decimal points"
    if _THOUSANDS.fullmatch(word):
        return "thousands are separated; save it without separators"
    if _WITH_UNIT.fullmatch(word):
        return "a unit stands beside it; save the number alone"
    if _HEXADECIMAL.fullmatch(word):
        return "it is hexadecimal; save it in decimal"
    if (plain := word.replace("\u2212", "-").strip("'\"")) != word and is_number(plain):
        return "quotes or a minus sign of print; save plain numbers"
    if "_" in word and is_number(word.replace("_", "")):
        return "an underscore is no digit; save plain numbers"
    return None


def is_missing(word: str) -> bool:
    """Whether a value is empty, NaN or infinite."""
    return word.lower().lstrip("+-") in _NOT_FINITE or not word


def is_number(text: str) -> bool:
    """Whether a word reads as a number."""
    return bool(np.isfinite(number(text)))


def number(value: Any) -> float:
    """A value as a number; NaN for a word."""
    try:
        return float(str(value).replace("_", "?"))
    except ValueError:
        return float("nan")


_BLANK = re.compile(r"[\s_]+")
_OF_PANDAS = ("<na>", "nat")
_MARKS = " .,;:"
_LOOKS: dict[str, str] = {
    "a missing value": "None",
    "the mark of a line's end": ".*;",
    "a date": r"((19|20)\d\d([-_. ]?\d\d){2}|\d\d?([-_. ])\d\d?\4(19|20)?\d\d)(\D.*)?",
    "a class and a number": r".*[^\W\d].*\d",
}
LOOKED_AT = 64
"""Letters of a name."""
_ACTIVITY = re.compile(
    r"walk(ing)?|run(ning)?|sit(ting)?|stand(ing)?|jog(ging)?|lay(ing)?|lying|(up|down)?stairs"
    r"|cycling|bik(e|ing)|climb(ing)?|jump(ing)?|rest(ing)?|idle|still|driv(e|ing)",
    re.IGNORECASE,
)


def refuse_alike(where: object, kind: str, names: Iterable[str]) -> None:
    """Raises DataError for two of the names that are one but for how they are written.

    They would become two classes, or one person on both sides of a split.
    """
    spellings: dict[str, str] = {}
    for name in sorted(names):
        other = spellings.setdefault(_plain(name), name)
        if other != name:
            raise DataError(
                f"{where}: {kind} {other!r:.40} and {name!r:.40} differ in capitals, blanks, marks"
                " at the end or zeros before a number alone; write each name one way"
            )


def refuse_doubtful(where: object, classes: Set[str], people: Set[str]) -> None:
    """Raises DataError, a question, for classes that look like dates, people, numbers or damage."""
    questions = [
        (name, meaning)
        for meaning, pattern in _LOOKS.items()
        for name in sorted(classes)
        if re.fullmatch(pattern, name[-LOOKED_AT:])
    ]
    questions += [(name, "a person, too") for name in sorted(classes & people)]
    acting = sorted(filter(_ACTIVITY.fullmatch, people))
    if 2 * len(acting) >= len(people) > 1:
        questions += [(acting[0], "what the person did, and a label who it was")]
    for name, meaning in questions:
        raise DataError(
            f"{where}: is {name!r:.60} {meaning}? Say in label.words what each label means, itself"
            " or null to leave it out, or correct `files` ({number} for digits), text.end or the"
            " column"
        )


def refuse_missing(where: object, names: Iterable[str]) -> None:
    """Raises DataError for a label that says that there is none, or has a line's end.

    That is `nan` of pandas, `None` of Python, and `p;`.
    """
    for name in names:
        plain = name.strip()
        if plain.endswith(";"):
            raise DataError(f"{where}: a label {name!r:.40} has a mark at its end; remove it")
        if is_missing(plain) or plain == "None" or plain.lower() in _OF_PANDAS:
            raise DataError(
                f"{where}: a label {name!r:.40} is a missing value; name it, or remove what has it"
            )


def _plain(name: str) -> str:
    """Return a name without what differs by hand."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    plain = _BLANK.sub(" ", folded).strip(_MARKS)
    if len(name) == 1 and name.isalpha():
        return name
    if is_number(plain):
        return str(number(plain))
    return plain


NO_SUBJECT = -1
"""The subject of a window whose source names none."""
LARGEST_INTEGER = 2**31 - 1
"""Largest id, class or row number: they are stored as int32."""

Report = Callable[[str, int, int], None]
"""Callback of progress: the stage (`hashing` in bytes, `hashing files`, `reading`, `writing`), the
completed part and the total."""


def silent(stage: str, done: int, total: int) -> None:
    """A Report for callers without a display."""


@dataclass(frozen=True)
class Cutting:
    """The settings that a reader may use.

    window_steps, window_stride: steps of a window and between two; seed: of invented recordings;
    groups: whether `user` or `device` is the group of a window; split: whether the test gets whole
    `groups` or `random` windows; null_class: whether readings without an activity are a class;
    filters: `two-way` or `causal`, see core/data/filters.py; format: how the recordings are
    written, as JSON has a `RecordingFormat`; sampling_hz: of windows that are resampled;
    label_share: of a window's samples that have its label; bad_lines: the share of lines that may
    be damaged; nine_channels: whether described recordings become those of HAPT;
    test_set: of several sets, the one that is the test, None for one of them.
    """

    window_steps: int
    window_stride: int
    seed: int
    groups: str = "user"
    split: str = "groups"
    null_class: bool = True
    filters: str = TWO_WAY
    format: Mapping[str, Any] | None = None
    sampling_hz: float | None = None
    label_share: float = 1.0
    bad_lines: float | None = None
    nine_channels: bool = False
    test_set: str | None = None

    @classmethod
    def of(
        cls, window_steps: int, window_stride: int, seed: int, options: Mapping[str, Any]
    ) -> "Cutting":
        """Return the settings, of which `options` are others by name, as JSON has them.

        Raises DataError for a name that is none of them.
        """
        names = {field.name for field in fields(cls)} - {"window_steps", "window_stride", "seed"}
        for name in options.keys() - names:
            raise DataError(
                f"unknown setting {name!r:.60} of the data: expected {', '.join(sorted(names))};"
                " leave it out"
            )
        return cls(window_steps, window_stride, seed, **options)


@dataclass(frozen=True)
class Recordings:
    """Labelled windows, the training rows first.

    windows: float32 (N, steps, channels) in the source's own units; classes: int32 (N,), zero-based
    into `labels`; subjects: int32 (N,), `NO_SUBJECT` where unknown; the first `train_windows` rows
    are for training. `signals` is what the source says of its channels.
    """

    windows: Singles
    classes: Integers
    subjects: Integers
    train_windows: int
    labels: tuple[str, ...]
    signals: Signals = UNKNOWN


def check(recordings: Recordings, where: str) -> Recordings:
    """Return the same recordings if their classes can be trained on.

    Raises DataError naming `where`: a class without a name or without training windows.
    """
    train = recordings.train_windows
    refuse_missing(where, recordings.labels)
    refuse_alike(where, "labels", recordings.labels)
    in_training = np.bincount(recordings.classes[:train], minlength=len(recordings.labels))
    for index in np.flatnonzero(in_training == 0):
        raise DataError(
            f"{where}: class {index} ({recordings.labels[index]!r}) has no training window; record"
            " some, use a shorter window, or remove the class"
        )
    return recordings


def one_class(labels: Sequence[str]) -> str:
    """Return why data with one class, or none, cannot be trained on, and what to do."""
    if labels:
        actual = f"{labels[0]!r:.60} alone"
    else:
        actual = "none"
    return (
        f"expected at least 2 classes, got {actual}: a model of one class is always right; add"
        " recordings of others"
    )


def check_window(cutting: Cutting) -> None:
    """Raises DataError when a window or its stride is shorter than one step."""
    for name, value in (
        ("window_steps", cutting.window_steps),
        ("window_stride", cutting.window_stride),
    ):
        if value < 1:
            raise DataError(
                f"{name}: expected at least 1 step, got {value}; the published sets use 128 at"
                " stride 64"
            )
