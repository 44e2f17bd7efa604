"""The files of recordings by their paths, which say whose they are, what was done, and when.

A path begins with the name of what a person gave. A pattern gives the words of a path that say who
and what, in every way in which it fits; it is matched token by token and place by place, so the
work is bounded by the lengths of the name and of the pattern.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.data.archive import Member, members_of
from core.data.described.description import APART, WORD, RecordingFormat
from core.ground.errors import DataError

__all__ = ["Member", "members_of"]

MOST_READINGS = 16
"""Ways of the rest of a path, at most."""
LONGEST_PART = 255
"""File systems allow no longer one."""
FOLDERS = "**/"
NUMBER = "{number}"
_TOKENS = re.compile(r"\*\*/|\*|\{\w+(?:![^{}]+)?\}|[^*{}]+|[{}]")

PathFields = dict[str, str]
Reading = tuple[str, PathFields, str]
"""The recording that a path belongs to, what the path says, and the folders before that."""


class PathPattern:
    """A path pattern, which the end of a path has to fit, in capitals or not."""

    def __init__(self, pattern: str) -> None:
        self._slashes = pattern.count("/")
        self._is_deep = FOLDERS in pattern
        self._tail = re.split(r"[*}]", pattern)[-1].lower()
        self._tokens = [_Token(text) for text in _TOKENS.findall(pattern)]

    def fits(self, name: str) -> Reading | None:
        """Return what a path says, None where it does not fit. Raises DataError as `only` does."""
        return only(name, self.readings(name))

    def readings(self, name: str) -> Sequence[Reading]:
        """Return each way in which a path fits.

        The recording is the path without what differs between the files of its sensors.
        """
        segments = name.split("/")
        if max(map(len, segments)) > LONGEST_PART or not name.lower().endswith(self._tail):
            return ()
        if self._is_deep:
            first = 0
        else:
            first = len(segments) - 1 - self._slashes
        ways: dict[int, list[Reading]] = {}
        for place in range(max(first, 0), len(segments) if self._is_deep else first + 1):
            before = "".join(f"{segment}/" for segment in segments[:place])
            ways[len(before)] = [(before, {}, before)]
        for token in self._tokens:
            ways = token.after(ways, name)
        return ways.get(len(name), ())


class _Token:
    """One part of a pattern: a text, marks that stand for any, or a word."""

    def __init__(self, text: str) -> None:
        word, _, without = text.strip("{}").partition("!")
        if text.startswith("{") and text != NUMBER:
            self._word = word
        else:
            self._word = ""
        self._is_deep = text == FOLDERS
        self._is_any = bool(self._word) or text.startswith("*")
        expression = re.escape(text)
        if text == NUMBER:
            expression = r"(?<!\d)\d+"
        elif self._is_deep:
            expression = ".*/|"
        elif self._is_any:
            expression = f"[^/{re.escape(without)}]{'+' if self._word else '*'}"
        self._expression = re.compile(expression, re.DOTALL | re.IGNORECASE)

    def after(self, ways: Mapping[int, list[Reading]], text: str) -> dict[int, list[Reading]]:
        """Return how a text is read up to each place behind this part, from how it was before."""
        longer: dict[int, list[Reading]] = defaultdict(list)
        for begin, readings in sorted(ways.items()):
            for end in self._ends(text, begin):
                value = text[begin:end]
                for recording, fields, before in readings:
                    if self._word and fields.get(self._word, value).lower() != value.lower():
                        continue
                    if self._word:
                        own_fields = {self._word: value, **fields}
                    else:
                        own_fields = fields
                    if self._word in APART:
                        label = "*"
                    else:
                        label = value
                    way = (recording + label, own_fields, before)
                    if way not in longer[end] and len(longer[end]) < MOST_READINGS:
                        longer[end].append(way)
        return longer

    def _ends(self, text: str, begin: int) -> Iterable[int]:
        """Return where it may end if it begins here."""
        match = self._expression.match(text, begin)
        if match is None:
            return ()
        if not self._is_any:
            return (match.end(),)
        ends = range(begin + bool(self._word), match.end() + 1)
        return [end for end in ends if not self._is_deep or end == begin or text[end - 1] == "/"]


def only(where: str, readings: Sequence[Reading], labels: Collection[str] = ()) -> Reading | None:
    """Return the first reading of a path, None where there is none.

    `labels` are those that a label may be, where they are known. Raises DataError for another one
    that says another word.
    """
    readings = [reading for reading in readings if reading[1].get("label") in labels] or readings
    for _, fields, _ in readings[1:]:
        shared = sorted(fields.keys() & readings[0][1].keys())
        first = [readings[0][1][word] for word in shared]
        second = [fields[word] for word in shared]
        if first != second:
            word = next(word for word in shared if fields[word] != readings[0][1][word])
            raise DataError(
                f"{where}: fits `files` in two ways: {', '.join(shared)} is {', '.join(first):.80}"
                f" or {', '.join(second):.80}; exclude marks from one, as"
                f" {{{word}!_}}, write {{number}} for digits, or name all labels in label.words"
            )
    return next(iter(readings), None)


LARGEST_DOCUMENT_BYTES = 128 * 2**20
"""Bytes that become objects of Python, which take ten times as much."""


@dataclass(frozen=True)
class Sheaf:
    """The files of one recording: one, or one a sensor; and what their path says."""

    name: str
    files: dict[str | None, Member]
    path_fields: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of its files, where they lie."""
        return sum(member.size for member in set(self.files.values()))


def sheaves(
    source: Path,
    form: RecordingFormat,
    *,
    unlabelled: bool = False,
    members: Iterable[Member] | None = None,
) -> Sequence[Sheaf]:
    """Return the recordings of a source, in the order of their paths.

    With `unlabelled` the folders that a pattern begins with, and that say one thing each, need not
    be there. `members` are the files, where they are listed already. Raises DataError where none
    fits, or a sensor's file is missing.
    """
    patterns = [PathPattern(_inner(pattern) if unlabelled else pattern) for pattern in form.files]
    begins = set[str]()
    recordings: dict[str, Sheaf] = {}
    for member in members_of(source) if members is None else members:
        readings = [reading for pattern in patterns for reading in pattern.readings(member.name)]
        fits = only(f"{source}: {member.name}", readings, form.label.words)
        is_meant = member.path == source and not any(map(WORD.search, form.files))
        if fits is None and not (is_meant and not member.inner):
            continue
        name, path_fields, begin = fits or (member.name, {}, "")
        sensors = {path_fields.pop("sensor", None)}.intersection(form.files_of)
        path_fields.pop("any", None)
        if form.has_all_sensors:
            name = member.name
            sensors = set(form.files_of)
        for sensor in sensors:
            begins.add(begin)
            other = recordings.setdefault(name, Sheaf(name, {}, path_fields)).files.setdefault(
                sensor, member
            )
            if other is not member:
                raise DataError(
                    f"{source}: {other.where} and {member.where} would be one recording; move one"
                    " away, or write {session} where their paths differ"
                )
    _refuse_incomplete(source, form, recordings)
    if form.anchored and not unlabelled and len(begins) > 1:
        folders = sorted(begins)
        raise DataError(
            f"{source}: {form.title}: {form.files[0]} begins in {folders[0]!r:.60} and in"
            f" {folders[1]!r:.60}; name one folder, or describe the paths in a format of your own"
            " with `like`, `files` and `anchored: false`"
        )
    return [recordings[name] for name in sorted(recordings)]


def _inner(pattern: str) -> str:
    """Return a pattern without the folders at its beginning that say one thing each."""
    first, slash, rest = pattern.partition("/")
    if slash and WORD.fullmatch(first):
        return _inner(rest)
    return pattern


def _refuse_incomplete(
    source: Path, form: RecordingFormat, recordings: Mapping[str, Sheaf]
) -> None:
    if not recordings:
        raise DataError(
            f"{source}: {form.title}: expected files {' or '.join(form.files)}, found none; name"
            " the folder that holds them, also for one file, or describe its paths in a format of"
            " your own"
        )
    for name, sheaf in sorted(recordings.items()):
        for sensor in form.sensors:
            if sensor not in sheaf.files:
                other_sensors = ", ".join(sorted(map(str, sheaf.files)))
                raise DataError(
                    f"{source}: {name}: no file of the sensor {sensor!r:.60}, got {other_sensors};"
                    " record with it, or describe other channels"
                )
