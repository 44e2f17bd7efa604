"""The tiers of the tests, from the measured costs of costs.json.

`fast` has each test that costs at most one CPU second, `stories` one form of each dearer one,
`long` one test for each behaviour that takes a whole training, `lab` the emulated Raspberry Pis,
and `all` every form of every test but those of the lab. `python -m tests.costs` measures.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
COSTS = PROJECT / "tests" / "costs.json"
TIERS = ("fast", "stories", "long", "lab", "all")

SHARED_CLUSTERS = frozenset({"clusters", "deployed"})
"""Fixtures that start a cluster: the first test that comes pays for it, so none of them is fast."""
USES_A_CLUSTER = re.compile(r"\b(?:clusters?|two_servers|deployed)\b")


@dataclass(frozen=True)
class Costs:
    """The CPU seconds of tests: of dear ones by node id, of the others by file.

    The tier that lists a test is the tier it belongs to. A test that no tier lists is fast, or
    belongs to `all` where it is marked long.
    """

    fast: Mapping[str, float]
    stories: Mapping[str, float]
    long: Mapping[str, float]
    all: Mapping[str, float]
    need_root: frozenset[str]
    """Tests that an ordinary account cannot run."""

    def of_files(self) -> dict[str, float]:
        """Return the CPU seconds of each file's dearest tier."""
        files = dict(self.fast)
        for costs in (self.stories, self.long):
            for node, seconds in costs.items():
                files[file_of(node)] = files.get(file_of(node), 0.0) + seconds
        return files


def read_costs(path: Path = COSTS) -> Costs:
    """Return the measured costs."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Costs(
        content["fast"],
        content["stories"],
        content["long"],
        content["all"],
        frozenset(content["need_root"]),
    )


def file_of(node: str) -> str:
    """Return the path of a test's file."""
    return node.partition("::")[0]


def function_of(node: str) -> str:
    """Return the node id without the form in brackets."""
    return node.partition("[")[0]


def tier_of(node: str, marks: Iterable[str], fixtures: Iterable[str], costs: Costs) -> str:
    """Return the first tier that runs a test: one of `TIERS`, or `sources`."""
    kinds = frozenset(marks)
    for kind in ("lab", "sources"):
        if kind in kinds:
            return kind
    if node in costs.long:
        return "long"
    if node in costs.all or "long" in kinds:
        return "all"
    if node in costs.stories or not SHARED_CLUSTERS.isdisjoint(fixtures):
        return "stories"
    return "fast"


def may_have(text: str, file: str, tier: str, costs: Costs) -> bool:
    """Return whether a file of tests may have a test of this tier, by its text."""
    if tier == "long":
        return any(file_of(node) == file for node in costs.long)
    if tier == "stories":
        dear = any(file_of(node) == file for node in costs.stories)
        return dear or USES_A_CLUSTER.search(text) is not None
    return True


class Tier:
    """The pytest plugin that takes the tests of one tier, the dearest files first."""

    def __init__(self, name: str, is_root: bool, only_root: bool = False) -> None:
        self._name = name
        self._is_root = is_root
        self._only_root = only_root
        self._costs = read_costs()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out the files that have no test of the tier: to import one costs seconds."""
        path = collection_path
        if path.suffix != ".py" or not path.name.startswith("test_"):
            return None
        file = path.relative_to(PROJECT).as_posix()
        if self._only_root and file not in map(file_of, self._costs.need_root):
            return True
        if may_have(path.read_text(encoding="utf-8"), file, self._name, self._costs):
            return None
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Take the tests of the tier."""
        taken = list(filter(self._takes, items))
        chosen = set(taken)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = self._dearest_first(taken)

    def _takes(self, item: pytest.Item) -> bool:
        needs_root = item.nodeid in self._costs.need_root
        if (needs_root and not self._is_root) or (self._only_root and not needs_root):
            return False
        marks = (mark.name for mark in item.iter_markers())
        tier = tier_of(item.nodeid, marks, getattr(item, "fixturenames", ()), self._costs)
        if self._name == "all":
            return tier not in ("lab", "sources")
        return tier == self._name

    def _dearest_first(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        costs = self._costs.of_files()
        return sorted(items, key=lambda item: -costs.get(file_of(item.nodeid), 0.0))
