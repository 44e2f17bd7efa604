"""Phrases that riddle, and the plain words for each.

`python -m tests.habits.plain_english FILE...` prints those of the files.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
BETTER = {
    r"(?:is|are|was|were|be|been|being|get|gets) told": "is notified, reads, shows, reports",
    r"told": "reported, notified",
    r"tells?": "notifies, reports, says; distinguishes",
    r"telling": "notifying, reporting",
    r"nobody": "none; name what is absent: no process, no account, no reader",
    r"no one": "none; name what is absent",
    r"somebody": "another account, another process, a person",
    r"whoever": "the caller, the reader, a process that",
    r"(?:g(?:one|oes|o|oing)|went) on(?: with)?": "resume, continue",
    r"(?:made|makes?|making) up for": "recover, repeat; say which command to run",
    r"so (?:much|many) so far": "progress, completed and total",
    r"so many (?:of|as)": "as many as; name the number",
    r"what (?:came|comes|becomes) of": "the result of",
    r"what is so": "the facts, the present state",
    r"held against": "checked against, compared with",
    r"for want of": "because ... is missing",
    r"(?:comes?|came) to (?:its|their) end": "ends, finishes",
    r"heeded": "obeyed, used",
    r"anew": "again, from the start",
    r"is none that": "say what is missing",
    r"says? so": "reports it; say what it reports",
    r"all the same": "anyway",
    r"for ever": "forever, without an end",
    r"is at work": "is running",
    r"as (?:it|they) stands?": "unchanged",
    r"ha(?:s|ve) to be so": "the desired state",
    r"brought back|brings? back": "restarts, restores",
    r"so long as": "while, as long as",
    r"salvaged?": "recover",
    r"strangers?": "another host, another account, foreign",
}
PATTERN = re.compile(
    r"\b(?:" + "|".join(one.replace(" ", r"\s+") for one in BETTER) + r")\b", re.IGNORECASE
)

PROSE = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "Makefile",
    "inventory.yaml",
    "docs/**/*.md",
    "docs/conf.py",
    "inventories/*.yaml",
    "tools/*.sh",
    ".ci/run",
    "cluster/pages/*.yaml",
    "cluster/pages/templates/*.html",
)
PRODUCT = (
    "fabfile.py",
    "cluster/**/*.py",
    "core/**/*.py",
    "deploy/**/*.py",
    "ps_node/**/*.py",
    "worker_node/**/*.py",
    "recognise/**/*.py",
    "pscluster/**/*.py",
    "benchmarks/**/*.py",
    "tools/*.py",
)
HELPERS = (
    "tests/conftest.py",
    "tests/lab/[!t]*.py",
    "tests/lab_kernel/*.py",
    "tests/habits/[!t]*.py",
)
"""Modules beside the tests: a test may repeat a message of the product."""


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


def files(patterns: tuple[str, ...]) -> Iterator[Path]:
    """The files of the patterns, but for those that list the phrases themselves."""
    for pattern in patterns:
        paths = PROJECT.glob(pattern)
        yield from sorted(
            path
            for path in paths
            if "plain_english" not in path.name and "_build" not in path.parts
        )


def name(path: Path) -> str:
    """A file's path in the project."""
    return path.relative_to(PROJECT).as_posix()


def main() -> None:
    """Prints the phrases of the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="+", type=Path, help="files whose phrases are printed")
    for path in parser.parse_args().file:
        for phrase, times in Counter(found(path)).items():
            print(f"{path}: {times} x {phrase!r}: {better(phrase)}")


if __name__ == "__main__":
    main()
