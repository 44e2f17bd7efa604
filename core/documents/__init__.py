"""Documents that people write: YAML with the line of each key, sections, and what is wrong.

One `InventoryProblem` per finding, all of them in one `InventoryError`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from core.ground.errors import UsageError

VALUE_CHARACTERS = 60
"""Longest value quoted in a message; the file has the rest."""

LISTED_PROBLEMS = 200
"""A file with more problems is not an inventory."""


@dataclass(frozen=True)
class InventoryProblem:
    """One finding.

    `line` counts from 1; `override` is the `--set` argument that brought the value, if one did.
    """

    file: str
    key: str
    problem: str
    remedy: str
    line: int | None = None
    value: str | None = None
    override: str | None = None

    def __str__(self) -> str:
        """`file:line: key: value: problem - remedy`, leaving out what is not known."""
        if self.line is None:
            where = self.file
        else:
            where = f"{self.file}:{self.line}"
        if self.override is not None:
            where = f"--set {self.override}"
        segments = [where, self.key, self.value, f"{self.problem} - {self.remedy}"]
        return printable(": ".join(part for part in segments if part))


class InventoryError(UsageError):
    """An inventory, or an override of one, that cannot be used.

    The message lists every problem, one a line.
    """

    def __init__(self, problems: Iterable[InventoryProblem]) -> None:
        self.problems = tuple(
            sorted(problems, key=lambda problem: (problem.override is not None, problem.line or 0))
        )
        lines = [str(problem) for problem in self.problems[:LISTED_PROBLEMS]]
        if len(self.problems) > LISTED_PROBLEMS:
            lines.append(f"and {len(self.problems) - LISTED_PROBLEMS} more problems")
        super().__init__("\n".join(lines))


def printable(text: str) -> str:
    """Return the text with control characters and lone surrogates escaped.

    Any terminal can show it.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def yaml_words(value: object) -> str:
    """A value in YAML's words, at most `VALUE_CHARACTERS` long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    if len(text) <= VALUE_CHARACTERS:
        return text
    return f"{text[: VALUE_CHARACTERS - 3]}..."


def suggestion(word: str, choices: Iterable[str]) -> str | None:
    """The remedy for a misspelt word: the known one that is most like it; None if none is."""
    near = get_close_matches(word, list(choices), n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return None
