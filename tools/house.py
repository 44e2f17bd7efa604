"""The sizes of the rooms and other figures of the house: `python -m tools.house`.

house.json has the limit of each figure and, for a room, the budget that it is meant to reach. A
limit only falls: `--lower` takes today's figures, and `make check` refuses a commit that raises a
limit and changes anything else. Sizes are nodes of syntax trees (`ast.walk`), which no layout
changes. A word is what `wc -w` counts. Figures are those of the product (the packages of the
floors) unless a name says otherwise; templates of apps are data.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMITS = "tools/house.json"
PAGE = "docs/architecture.md"
COSTS = "tests/costs.json"
FLOORS = (
    "kernels",
    "core",
    "ps_node",
    "worker_node",
    "recognise",
    "cluster",
    "deploy",
    "pscluster",
)
OUTSIDE = ("experiments", "benchmarks", "tools", "tests")
"""Packages that have a size and no other figure."""
DATA = "deploy/apps/templates/"
WIDTH = 100
BEGIN = "<!-- `python -m tools.house --page` makes this table -->\n"
END = "<!-- the end of this table -->\n"

SUBJECTLESS = re.compile(
    r"(?:After|Also|And|As|At|Before|Between|By|For|From|In|Of|On|Only|Over|See|Since|So|That|Those"
    r"|To|Until|With|Without)\b|The same\b"
)
PRAGMA = re.compile(r"\s*# (?:type: ignore|noqa)\b.*")
FORMATTER_OFF = re.compile(r"#\s*fmt:\s*(?:skip|off)")
SAY_NOTHING = re.compile(
    "found|given|one|said|made|each|kept|known|shown|wanted|theirs|others|own|seen|asked|taken|left"
    "|here|there|words|parts|look|held|ours|mine|wish|got|who|whose"
)
"""Names of variables and parameters that could stand for anything."""


@dataclass(frozen=True)
class Module:
    """One Python file with its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def floor(self) -> str:
        """The first folder of its path, which is the package on its floor."""
        return self.name.partition("/")[0]

    @property
    def lines(self) -> list[str]:
        """The lines of its text."""
        return self.text.splitlines()


@dataclass(frozen=True)
class Limit:
    """The most that a figure may be, and for a size what it is meant to be."""

    most: float
    budget: float | None


def read_limits(text: str) -> dict[str, Limit]:
    """Return the limits of house.json, rooms and figures alike."""
    content = json.loads(text)
    return {
        name: Limit(row["limit"], row.get("budget"))
        for name, row in {**content["rooms"], **content["figures"]}.items()
    }


def rooms_of(text: str) -> dict[str, str]:
    """Return the room of each folder that house.json lists, by the folder."""
    rooms = json.loads(text)["rooms"]
    return {folder: name for name, row in rooms.items() for folder in row["folders"]}


def figures(root: Path) -> dict[str, float]:
    """Count each figure of house.json in the repository at `root`."""
    text = (root / LIMITS).read_text(encoding="utf-8")
    modules = list(_modules(root))
    product = [module for module in modules if module.floor in FLOORS]
    return {
        **sizes(modules, rooms_of(text)),
        **_sums(modules),
        **_styles(modules, product, root),
        **_seconds(root),
    }


def sizes(modules: Iterable[Module], rooms: Mapping[str, str]) -> dict[str, float]:
    """Return the nodes of each room. Raises ValueError for a module without a room."""
    count: dict[str, float] = dict.fromkeys(rooms.values(), 0)
    for module in modules:
        folders = [folder for folder in rooms if module.name.startswith(folder)]
        if folders:
            count[rooms[max(folders, key=len)]] += _nodes(module)
        elif module.floor in FLOORS or module.floor in OUTSIDE:
            raise ValueError(f"{module.name}: no room of {LIMITS} has its folder")
    return count


def _sums(modules: Sequence[Module]) -> dict[str, float]:
    product = [module for module in modules if module.floor in (*FLOORS, "experiments")]
    return {
        "nodes of the product with experiments": sum(map(_nodes, product)),
        "modules of the product with experiments": len(product),
    }


def _styles(modules: Sequence[Module], product: Sequence[Module], root: Path) -> dict[str, float]:
    lines = sum(len(module.lines) for module in product)
    kinds = Counter(type(node) for module in product for node in ast.walk(module.tree))
    return {
        "arrows against the order of the floors": len(arrows_upward(product)),
        "import contracts": len(_contracts(root)),
        "places that switch the formatter off (all)": sum(
            len(FORMATTER_OFF.findall(module.text)) for module in modules
        ),
        "conditional expressions a thousand lines": round(1000 * kinds[ast.IfExp] / lines, 1),
        "tuple assignments a thousand lines": round(
            1000 * sum(map(_tuple_assignments, product)) / lines, 1
        ),
        "lines over 100 columns (all)": sum(
            len(PRAGMA.sub("", line)) > WIDTH for module in modules for line in module.lines
        ),
        "class names with two meanings": len(names_used_twice(product)),
        "docstrings without a subject": len(subjectless(product)),
        "names that say nothing a thousand lines": round(
            1000 * sum(map(_names_that_say_nothing, product)) / lines, 1
        ),
        "lines of the native library": sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for path in sorted((root / "kernels" / "native").glob("*"))
        ),
        "words of docs": sum(
            len(page.read_text(encoding="utf-8").split()) for page in _pages(root)
        ),
    }


def _seconds(root: Path) -> dict[str, float]:
    """Return the measured CPU seconds of the tests that CI runs, by their tier."""
    costs = json.loads((root / COSTS).read_text(encoding="utf-8"))
    return {
        f"CPU seconds of {tier} tests": round(sum(costs[tier].values()))
        for tier in ("fast", "stories", "long")
    }


def beyond(counted: Mapping[str, float], limits: Mapping[str, Limit]) -> list[str]:
    """Return one line for each figure that is larger than its limit."""
    return [
        f"{name}: {value:,}, at most {limits[name].most:,}"
        for name, value in counted.items()
        if value > limits[name].most
    ]


def raised(before: Mapping[str, Limit], after: Mapping[str, Limit]) -> list[str]:
    """Return the figures whose limit or budget rose."""
    return [
        name
        for name, limit in after.items()
        if name in before
        and (
            limit.most > before[name].most
            or (limit.budget or 0) > (before[name].budget or float("inf"))
        )
    ]


def raised_on_the_side(root: Path) -> list[str]:
    """Return one line for each commit that raised a limit and changed more than limits."""
    problems = []
    commits = _git(root, "log", "-n", "100", "--format=%H", "--no-merges", "--", LIMITS).split()
    for commit in commits:
        before = _git(root, "show", f"{commit}~:{LIMITS}")
        if not before:
            continue
        after = _git(root, "show", f"{commit}:{LIMITS}")
        names = raised(read_limits(before), read_limits(after))
        files = set(_git(root, "show", "--format=", "--name-only", commit).split("\n"))
        if names and not files <= {"", LIMITS, PAGE}:
            problems.append(
                f"{commit[:8]} raises {', '.join(names)} and changes other files: a commit that"
                " raises a limit changes nothing else, and says what left in return"
            )
    return problems


def lowered(text: str, counted: Mapping[str, float]) -> str:
    """Return house.json with today's figures where they are below the limits."""
    content = json.loads(text)
    for rows in (content["rooms"], content["figures"]):
        for name, row in rows.items():
            row["limit"] = min(row["limit"], counted[name])
    return json.dumps(content, indent=1) + "\n"


def table(counted: Mapping[str, float], limits: Mapping[str, Limit]) -> str:
    """Return the figures as a table of a page."""
    rows = ["| figure | limit | budget |", "|---|---|---|"]
    rows += [
        f"| {name} | {limits[name].most:,} | {_shown(limits[name].budget)} |" for name in counted
    ]
    return "\n".join(rows) + "\n"


def with_table(page: str, rows: str) -> str:
    """Return the page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def arrows_upward(product: Iterable[Module]) -> list[str]:
    """Return each import of a floor that stands above, or beside, the one that imports it."""
    arrows = []
    for module in product:
        level = FLOORS.index(module.floor)
        for name in _imported(module.tree):
            floor = name.partition(".")[0]
            if floor in FLOORS and FLOORS.index(floor) > level:
                arrows.append(f"{module.name} imports {name}")
    return arrows


def names_used_twice(product: Iterable[Module]) -> dict[str, list[str]]:
    """Return the public classes that have one name in several modules, with their places."""
    places: dict[str, list[str]] = {}
    for module in product:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{module.name}:{node.lineno}")
    return {name: lines for name, lines in sorted(places.items()) if len(lines) > 1}


def subjectless(product: Iterable[Module]) -> list[str]:
    """Return the places of docstrings that begin without a subject, such as "Of the container".

    The string below an attribute is its docstring.
    """
    return [
        f"{module.name}:{line}"
        for module in product
        for node in ast.walk(module.tree)
        for line, text in _docstrings(node)
        if SUBJECTLESS.match(text)
    ]


def _docstrings(node: ast.AST) -> Iterable[tuple[int, str]]:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
    for attribute, following in zip(node.body, node.body[1:], strict=False):
        match attribute, following:
            case ast.AnnAssign() | ast.Assign(), ast.Expr(value=ast.Constant(value=str() as text)):
                yield following.lineno, text


def _modules(root: Path) -> Iterable[Module]:
    listing = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted(set(listing.split("\0"))):
        path = root / name
        if path.suffix == ".py" and path.is_file() and not name.startswith(DATA):
            text = path.read_text(encoding="utf-8")
            yield Module(name, text, ast.parse(text, name))


def _git(root: Path, *words: str) -> str:
    """Return what git prints; nothing where it fails, as for the parent of a first commit."""
    done = subprocess.run(
        ["git", "-C", str(root), *words], check=False, capture_output=True, text=True
    )
    if done.returncode:
        return ""
    return done.stdout


def _nodes(module: Module) -> int:
    return sum(1 for _ in ast.walk(module.tree))


def _imported(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def _tuple_assignments(module: Module) -> int:
    return sum(
        isinstance(node, ast.Assign) and any(isinstance(t, ast.Tuple) for t in node.targets)
        for node in ast.walk(module.tree)
    )


def _names_that_say_nothing(module: Module) -> int:
    count = 0
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                count += SAY_NOTHING.fullmatch(name) is not None
    return count


def _contracts(root: Path) -> list[object]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[object] = project["tool"]["importlinter"]["contracts"]
    return contracts


def _pages(root: Path) -> list[Path]:
    folders = (root / "docs", root / "docs" / "how-to-add")
    pages = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    return [*pages, root / "README.md", root / "CONTRIBUTING.md"]


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}"


def _print(counted: Mapping[str, float], limits: Mapping[str, Limit]) -> None:
    print(f"{'':55} {'budget':>10} {'limit':>10} {'now':>10} {'change':>9}")
    for name, value in counted.items():
        change = round(value - limits[name].most, 1)
        columns = f"{_shown(limits[name].budget):>10} {limits[name].most:>10,} {value:>10,}"
        print(f"{name:55} {columns} {change:>+9,}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures beside limits and budgets; the exit code is 1 where one is too large."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--lower", action="store_true", help="take today's figures as the limits")
    parser.add_argument("--page", action="store_true", help=f"write the table of {PAGE}")
    flags = parser.parse_args(arguments)
    counted = figures(ROOT)
    text = (ROOT / LIMITS).read_text(encoding="utf-8")
    if flags.lower:
        text = lowered(text, counted)
        (ROOT / LIMITS).write_text(text, encoding="utf-8")
    limits = read_limits(text)
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    new_page = with_table(page, table(counted, limits))
    if flags.lower or flags.page:
        (ROOT / PAGE).write_text(new_page, encoding="utf-8")
        page = new_page
    if flags.json:
        print(json.dumps(counted, indent=1))
    else:
        _print(counted, limits)
    problems: list[Any] = [*beyond(counted, limits), *raised_on_the_side(ROOT)]
    if page != new_page:
        problems.append(f"{PAGE}: another table than the limits: `python -m tools.house --page`")
    for problem in problems:
        print(problem, file=sys.stderr)
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
