"""Path patterns: which words of a path say who and what, in every way in which it fits.

A path is matched token by token and place by place, so the work is bounded by the lengths of the
name and of the pattern.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache

from core.data.described.description import APART
from core.ground.errors import DataError

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
        begins: Iterable[int] = [len(segments) - 1 - self._slashes]
        if self._is_deep:
            begins = range(len(segments))
        ways = self._ways(name)
        readings = []
        for place in begins:
            if place >= 0:
                before = "".join(f"{segment}/" for segment in segments[:place])
                readings += [
                    (before + recording, fields, before)
                    for recording, fields in ways(0, len(before))
                ]
        return readings

    def _ways(self, text: str) -> Callable[[int, int], Sequence[tuple[str, PathFields]]]:
        """Return what finds the ways in which the rest of a text fits, from a token and a place."""

        @cache
        def ways(place: int, begin: int) -> Sequence[tuple[str, PathFields]]:
            if place == len(self._tokens):
                return [("", {})] if begin == len(text) else []
            token = self._tokens[place]
            all_ways: list[tuple[str, PathFields]] = []
            for end in token.ends(text, begin):
                value = text[begin:end]
                label = "*" if token.word in APART else value
                for rest, fields in ways(place + 1, end):
                    if token.word and fields.get(token.word, value).lower() == value.lower():
                        all_ways.append((label + rest, {**fields, token.word: value}))
                    elif not token.word and (label + rest, fields) not in all_ways:
                        all_ways.append((label + rest, fields))
                if len(all_ways) >= MOST_READINGS:
                    break
            return all_ways

        return ways


class _Token:
    """One part of a pattern: a text, marks that stand for any, or a word."""

    def __init__(self, text: str) -> None:
        word, _, without = text.strip("{}").partition("!")
        self.word = word if text.startswith("{") and text != NUMBER else ""
        self._is_deep = text == FOLDERS
        self._is_any = bool(self.word) or text.startswith("*")
        expression = re.escape(text)
        if text == NUMBER:
            expression = r"(?<!\d)\d+"
        elif self._is_deep:
            expression = ".*/|"
        elif self._is_any:
            expression = f"[^/{re.escape(without)}]{'+' if self.word else '*'}"
        self._expression = re.compile(expression, re.DOTALL | re.IGNORECASE)

    def ends(self, text: str, begin: int) -> Iterable[int]:
        """Return where it may end if it begins here."""
        match = self._expression.match(text, begin)
        if match is None:
            return ()
        if not self._is_any:
            return (match.end(),)
        ends = range(begin + bool(self.word), match.end() + 1)
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
                f" or {', '.join(second):.80}; say which marks one may not have, as"
                f" {{{word}!_}}, write {{number}} for digits, or name all labels in label.words"
            )
    return next(iter(readings), None)
