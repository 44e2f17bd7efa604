"""The figures of the house, and the limits that `make check` holds: `python -m tools.house`.

The figures are counted over the product (the packages of the floors) unless a name says `tests`,
`docs` or `all`. Sizes are nodes of syntax trees (`ast.walk`), which no layout changes. A word is
what `wc -w` counts.
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

ROOT = Path(__file__).resolve().parents[1]
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
WIDTH = 100

ADDED: Mapping[str, Mapping[str, int]] = {
    "nodes of the product": {
        "anybody's recordings": 37_200,
        "one arithmetic": 5_000,
        "a node taken over": 39_900,
    },
    "nodes of the tests": {
        "anybody's recordings": 23_900,
        "one arithmetic": 3_700,
        "a node taken over": 40_600,
    },
    "words of docs": {
        "anybody's recordings": 2_950,
        "one arithmetic": 900,
        "a node taken over": 4_000,
    },
}
"""What capabilities that came after the house was cleared have added."""

LIMITS: Mapping[str, float] = {
    "arrows against the order of the floors": 0,
    "import contracts": 12,
    "places that switch the formatter off (all)": 20,
    "conditional expressions a thousand lines": 8.0,
    "tuple assignments a thousand lines": 8.0,
    "lines over 100 columns (all)": 0,
    "class names with two meanings": 5,
    "docstrings without a subject": 0,
    "nodes of the product": 550_000 + sum(ADDED["nodes of the product"].values()),
    "nodes of the tests": 522_500 + sum(ADDED["nodes of the tests"].values()),
    "words of docs": 72_000 + sum(ADDED["words of docs"].values()),
}
"""The most that each figure may be. A limit only falls: who makes a figure smaller lowers it."""
AIMS: Mapping[str, float] = {
    "nodes of the product": 465_000,
    "nodes of the tests": 380_000,
    "words of docs": 70_000,
}
"""Where the house is still larger than it is meant to be."""

SUBJECTLESS = re.compile(r"(?:Of|That|Those|See)\b|The same\b")
PRAGMA = re.compile(r"\s*# (?:type: ignore|noqa)\b.*")
FORMATTER_OFF = re.compile(r"#\s*fmt:\s*(?:skip|off)")


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


def figures(root: Path) -> dict[str, float]:
    """Count each figure of `LIMITS` in the repository at `root`."""
    modules = list(_modules(root))
    product = [module for module in modules if module.floor in FLOORS]
    tests = [module for module in modules if module.floor == "tests"]
    lines = sum(len(module.lines) for module in product)
    nodes = Counter(type(node) for module in product for node in ast.walk(module.tree))
    counted = (
        len(arrows_upward(product)),
        len(_contracts(root)),
        sum(len(FORMATTER_OFF.findall(module.text)) for module in modules),
        round(1000 * nodes[ast.IfExp] / lines, 1),
        round(1000 * sum(map(_tuple_assignments, product)) / lines, 1),
        sum(len(PRAGMA.sub("", line)) > WIDTH for module in modules for line in module.lines),
        len(names_used_twice(product)),
        len(subjectless(product)),
        nodes.total(),
        sum(1 for module in tests for _ in ast.walk(module.tree)),
        sum(len(page.read_text(encoding="utf-8").split()) for page in _pages(root)),
    )
    return dict(zip(LIMITS, counted, strict=True))


def beyond(found: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return one line for each figure that is larger than its limit."""
    return [
        f"{name}: {value:,}, at most {limits[name]:,}"
        for name, value in found.items()
        if value > limits[name]
    ]


def arrows_upward(product: Iterable[Module]) -> list[str]:
    """Return each import of a floor that stands above, or beside, the one that imports it."""
    arrows = []
    for module in product:
        own = FLOORS.index(module.floor)
        for name in _imported(module.tree):
            floor = name.partition(".")[0]
            if floor in FLOORS and FLOORS.index(floor) > own:
                arrows.append(f"{module.name} imports {name}")
    return arrows


def names_used_twice(product: Iterable[Module]) -> dict[str, list[str]]:
    """Return the public classes that have one name in several modules, with their places."""
    places: dict[str, list[str]] = {}
    for module in product:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{module.name}:{node.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def subjectless(product: Iterable[Module]) -> list[str]:
    """Return the places of docstrings that begin without a subject, such as "Of the container"."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{module.name}:{getattr(node, 'lineno', 1)}"
        for module in product
        for node in ast.walk(module.tree)
        if isinstance(node, documented) and SUBJECTLESS.match(ast.get_docstring(node) or "")
    ]


def _modules(root: Path) -> Iterable[Module]:
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in sorted(set(listing.stdout.split("\0"))):
        path = root / name
        if path.suffix == ".py" and path.is_file():
            text = path.read_text(encoding="utf-8")
            yield Module(name, text, ast.parse(text, name))


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


def _contracts(root: Path) -> list[object]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[object] = project["tool"]["importlinter"]["contracts"]
    return found


def _pages(root: Path) -> list[Path]:
    folders = (root / "docs", root / "docs" / "how-to-add")
    pages = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    return [*pages, root / "README.md", root / "CONTRIBUTING.md"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures beside their limits; the exit code is 1 where one is beyond its limit."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print only what is beyond a limit")
    flags = parser.parse_args(arguments)
    found = figures(ROOT)
    problems = beyond(found, LIMITS)
    if flags.json:
        print(json.dumps(found, indent=1))
    elif not flags.quiet:
        for name, value in found.items():
            aim = f" (aim {AIMS[name]:,})" if name in AIMS else ""
            print(f"{name:45} {value:>10,} of {LIMITS[name]:>10,}{aim}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
