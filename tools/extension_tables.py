"""Tables of extensions, published sets and formats in docs/.

`python -m tools.extension_tables --write` saves them.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.data.described import known_formats
from core.data.fetch import SETS
from core.data.source import READERS
from core.inventory.extensions import CODECS, MODELS, MODES, OPTIMIZERS
from core.logs import say
from core.models.network import build

DOCS = Path(__file__).parents[1] / "docs"
CLASSIC: dict[str, Any] = {"window_steps": 128, "channels": 9, "classes": 6}
"""The windows of the UCI sets, for the counts of parameters."""

OWN = "the recordings are their maker's"
"""The licence of what a person records with an app, which the table leaves out."""


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join(
        [f"| {head} |", "|---" * (head.count("|") + 1) + "|", *(f"| {row} |" for row in rows)]
    )


def _modes() -> str:
    rows = (
        f"`{name}` | {mode.update} | {mode.waits} | "
        f"{'**yes**' if mode.same_bits(mode.Options and mode.Options()) else 'no'} | {mode.costs}"
        for name, mode in MODES.items()
    )
    return _table("mode | an update is | waits | same bits | cost", rows)


def _codecs() -> str:
    rows = (
        f"`{name}` | {codec.travels} | {_either(mode for mode in MODES if _takes(mode, codec))}"
        for name, codec in CODECS.items()
    )
    return _table("codec | what travels | modes", rows)


def _takes(mode: str, codec: Any) -> bool:
    return not (codec.keeps_back and MODES[mode].in_steps)


def _either(modes: Iterator[str]) -> str:
    found = list(modes)
    if len(found) == len(MODES):
        return "all"
    return ", ".join(f"`{name}`" for name in found)


def _optimizers() -> str:
    found: Mapping[str, Any] = OPTIMIZERS
    rows = (
        f"`{name}` | {_summary(kind.Options)} | "
        f"{', '.join(f'`{slot}`' for slot in kind.from_options(kind.Options()).slot_names)}"
        for name, kind in found.items()
    )
    return _table("`name` | what it is | slots at the defaults", rows)


def _models() -> str:
    rows = (
        f"`{name}` | {_summary(model.Options)} | "
        f"{build(model.Options(), **CLASSIC).layout.trained_size:,}"
        for name, model in MODELS.items()
    )
    return _table("`name` | what it is | parameters at the defaults", rows)


def _summary(section: type[Any]) -> str:
    return str(section.__doc__).strip().splitlines()[0].removesuffix(".")


def _readers() -> str:
    rows = (
        f"`{kind}` | {reader.is_what} | {reader.windows_are_cut}"
        for kind, reader in READERS.items()
    )
    return _table("kind | what it is | cut into windows", rows)


def _sets() -> str:
    rows = (f"`{name}` | `{published.sha256}`" for name, published in SETS.items())
    return _table("name | SHA-256", rows)


def _formats() -> str:
    rows = []
    for name in known_formats.names():
        form = known_formats.described(name, DOCS)
        hertz = str(form.time.hertz or "").removesuffix(".0")
        licence = str(form.licence).removeprefix(OWN)
        rows.append(f"`{name}` | [{form.title}]({form.origin}) | {hertz} | {licence}")
    return _table("name | what it reads | Hz | licence", rows)


TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "modes": ("modes.md", _modes),
    "codecs": ("modes.md", _codecs),
    "optimizers": ("models.md", _optimizers),
    "models": ("models.md", _models),
    "readers": ("data.md", _readers),
    "sets": ("data.md", _sets),
    "formats": ("recordings.md", _formats),
}
"""The page and the maker of a table, by the name in the page's marks."""


def pages() -> dict[str, str]:
    """Return each page with its tables of now. Raises ValueError for a page without its marks."""
    found: dict[str, str] = {}
    for name, (page, table) in TABLES.items():
        text = found.get(page) or (DOCS / page).read_text(encoding="utf-8")
        begin = f"<!-- {name}: made by tools/extension_tables.py -->\n\n"
        end = "\n\n<!-- end -->"
        marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not marked.search(text):
            raise ValueError(
                f"docs/{page}: expected a line {begin.strip()!r} and below it {end.strip()!r}"
            )
        # The function is called at once.
        found[page] = marked.sub(lambda _: begin + table() + end, text, count=1)  # noqa: B023
    return found


def main() -> int:
    """Write the pages, or name those that are not up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.extension_tables", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the pages instead of comparing them"
    )
    write = parser.parse_args().write
    stale = [
        name for name, text in pages().items() if (DOCS / name).read_text(encoding="utf-8") != text
    ]
    for name in stale:
        if write:
            (DOCS / name).write_text(pages()[name], encoding="utf-8")
        else:
            say(
                f"docs/{name}: not up to date - run python -m tools.extension_tables --write",
                error=True,
            )
    if stale and not write:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
