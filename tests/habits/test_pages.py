"""Pages wrap at 100 columns, say nothing twice, and their links lead somewhere; CHANGELOG has one
line an entry."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.habits.plain_english import PROJECT, name

pytestmark = pytest.mark.sources

WIDTH = 100
ENTRY_WIDTH = 140
LONG_WORDS = 12
BY_A_PROGRAM = ("docs/inventory.md", "docs/metrics.md")
"""Written whole by programs, `tools.inventory_reference` and `tools.metrics_reference`."""
PAGES = sorted([*PROJECT.glob("docs/**/*.md"), *PROJECT.glob("experiments/pages/*.md")])
HAND_WRITTEN = [path for path in PAGES if name(path) not in BY_A_PROGRAM]
BESIDE = [PROJECT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line outside of code and tables; an empty line ends a paragraph."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fence or fenced or line.startswith(("|", "#", "<!--", "    ")):
            line = ""
        yield number, line


def too_wide(text: str) -> list[str]:
    """The lines of prose over the width, without those that an address or a link makes so, or that
    a program writes."""
    by_hand = re.sub(
        r"<!-- [^>]*: made by .*?<!-- end",
        lambda part: "\n" * part[0].count("\n"),
        text,
        flags=re.S,
    )
    return [
        f"{number}: {line}"
        for number, line in prose(by_hand)
        if len(line) > WIDTH and len(re.sub(r"\]\([^)]*\)|https?://\S+", "", line)) > WIDTH - 20
    ]


def paragraphs(text: str) -> set[str]:
    """Paragraphs and items of a list that have at least twelve words, with single spaces."""
    whole = "\n".join(re.sub(r"^(?:[-*+]|\d+\.) ", "\n", line) for _, line in prose(text))
    pieces = (" ".join(piece.split()) for piece in re.split(r"\n\s*\n", whole))
    return {piece for piece in pieces if len(piece.split()) >= LONG_WORDS}


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pages_wrap_at_100_columns() -> None:
    wide = {
        name(path): too_wide(path.read_text(encoding="utf-8"))
        for path in [*HAND_WRITTEN, *BESIDE[:3]]
    }
    assert not {page: lines for page, lines in wide.items() if lines}


def test_no_paragraph_stands_on_two_pages() -> None:
    pages = defaultdict(list)
    for path in [*PAGES, *BESIDE]:
        for paragraph in paragraphs(path.read_text(encoding="utf-8")):
            pages[paragraph].append(name(path))
    twice = {paragraph: on for paragraph, on in pages.items() if len(on) > 1}
    assert not twice, "keep it on one page, and link to it from the other"


def dead_links(path: Path) -> Iterator[str]:
    """The targets on a page that are no file of the project, or no heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if file.startswith(("http://", "https://")):
            continue
        page = path.parent / file if file else path
        known = page.exists()
        if known and anchor:
            known = anchor in anchors(page.read_text(encoding="utf-8"))
        if not known:
            yield target


def test_links_lead_to_files_and_headings_that_exist() -> None:
    dead = {name(path): list(dead_links(path)) for path in [*PAGES, *BESIDE]}
    assert not {page: targets for page, targets in dead.items() if targets}


def test_an_entry_of_the_newest_version_is_one_line() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.partition("\n## [")[2].partition("\n## [")[0].partition("\n### ")[2]
    entries = [line for line in newest.splitlines()[1:] if line and not line.startswith("###")]
    assert entries
    assert not [line for line in entries if not re.fullmatch(rf"- .{{1,{ENTRY_WIDTH}}}", line)]


def test_lines_and_paragraphs_are_distinguished() -> None:
    twelve = "one two three four five six seven eight nine ten eleven twelve"
    wide = "word " * 25
    text = (
        f"# {wide}\n\n| {wide} |\n\n```\n{wide}\n```\n\n- {twelve}\n- {twelve}"
        f" more\n\n{wide}\n[x]({'y' * 120})\n"
    )
    text += f"<!-- x: made by `x` -->\n{wide}\n<!-- end of x -->\n{wide}\n"
    assert [line.partition(":")[0] for line in too_wide(text)] == ["12", "17"]
    assert twelve in paragraphs(text)
    assert f"{twelve} more" in paragraphs(text)
    assert anchors("## Who may `call` what?\n") == {"who-may-call-what"}
