"""Phrases that riddle, and the plain words for each: `plain_english.yaml`."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[2]
_TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
BETTER: dict[str, str] = _TABLE["phrases"]
PATTERN = re.compile(
    r"\b(?:" + "|".join(one.replace(" ", r"\s+") for one in BETTER) + r")\b", re.IGNORECASE
)


def said(path: Path) -> str:
    """What a person reads of a file: of Python its docstrings, comments and messages of two words
    or more, else all."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    strings = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value.split()) > 1
    ]
    comments = [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    return "\n\0\n".join([*strings, "\n".join(comments)])


def found(path: Path) -> list[str]:
    """The phrases in one file, in lower case, with single spaces."""
    return [" ".join(match.group().lower().split()) for match in PATTERN.finditer(said(path))]


def better(phrase: str) -> str:
    """The plain words for a phrase that was found."""
    return next(words for pattern, words in BETTER.items() if re.fullmatch(pattern, phrase))


def files() -> Iterator[Path]:
    """The files that a person reads, but for those that list the phrases themselves."""
    for pattern in _TABLE["files"]:
        paths = PROJECT.glob(pattern)
        yield from sorted(
            path
            for path in paths
            if "plain_english" not in path.name and "_build" not in path.parts
        )


def name(path: Path) -> str:
    """A file's path in the project."""
    return path.relative_to(PROJECT).as_posix()
