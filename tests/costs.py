"""Measure the CPU seconds of tests into tests/costs.json: `python -m tests.costs fast stories`.

A test's cost is that of its whole tree of processes, counted by a control group for each process
of pytest (so as root). A fixture that several tests share costs each of them its part. Measure on
a quiet machine: a busy one counts up to half more.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import (
    COSTS,
    PROJECT,
    SHARED_CLUSTERS,
    TIERS,
    Costs,
    file_of,
    function_of,
    read_costs,
)

DEAR_SECONDS = 1.0
"""A test that costs more is not fast."""
CHEAP_SECONDS = 0.7
"""A dear test that costs less is fast again: between both it stays what it was."""
CPU = Path("/sys/fs/cgroup/cpuacct")
"""The first version of control groups; the second has one tree for all."""


@dataclass(frozen=True)
class Measured:
    """What one test cost."""

    node: str
    seconds: float
    is_long: bool
    uses_shared_cluster: bool
    needs_root: bool


class ControlGroup:
    """A control group for this process and all that it starts. Raises OSError without root."""

    def __init__(self) -> None:
        if CPU.is_dir():
            parent, self._file, self._unit = CPU, "cpuacct.usage", 1e9
        else:
            parent, self._file, self._unit = CPU.parent, "cpu.stat", 1e6
        self._folder = parent / f"tests-costs-{os.getpid()}"
        self._folder.mkdir()
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self) -> float:
        """Return the CPU seconds that all processes of the group have used."""
        words = (self._folder / self._file).read_text().split()
        count = words[words.index("usage_usec") + 1] if "usage_usec" in words else words[0]
        return int(count) / self._unit


class Meter:
    """The pytest plugin that writes one line of JSON for each test and each shared fixture."""

    def __init__(self, folder: Path) -> None:
        self._group = ControlGroup()
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._records = (folder / f"{worker}-{os.getpid()}").open("a", buffering=1)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Import TensorFlow first: else the first test that uses it would pay."""
        import tensorflow  # noqa: F401

        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure a test without the fixtures that others share."""
        before = self._group.seconds()
        self._shared_seconds = 0.0
        self._root_was_missing = False
        result = yield
        definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        self._write(
            kind="test",
            name=item.nodeid,
            seconds=self._group.seconds() - before - self._shared_seconds,
            shared=[name for name, (*_, last) in definitions.items() if last.scope != "function"],
            is_long=item.get_closest_marker("long") is not None,
            uses_shared_cluster=not SHARED_CLUSTERS.isdisjoint(definitions),
            needs_root=self._root_was_missing,
        )
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Measure a fixture that several tests share, without those that it uses itself."""
        if fixturedef.scope == "function":
            return (yield)
        before = self._group.seconds()
        outer = self._shared_seconds
        self._shared_seconds = 0.0
        try:
            return (yield)
        finally:
            spent = self._group.seconds() - before
            self._write(
                kind="fixture",
                name=fixturedef.argname,
                seconds=spent - self._shared_seconds,
                where=request.node.nodeid,
            )
            self._shared_seconds = outer + spent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See which tests an ordinary account cannot run."""
        if report.skipped and "needs root" in str(report.longrepr):
            self._root_was_missing = True

    def _write(self, **record: Any) -> None:
        self._records.write(json.dumps(record) + "\n")


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records of a measurement."""
    return [
        json.loads(line)
        for path in sorted(folder.iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def measured(records: Iterable[Mapping[str, Any]]) -> list[Measured]:
    """Return the tests with their parts of shared fixtures."""
    records = list(records)
    tests = [record for record in records if record["kind"] == "test"]
    fixtures: defaultdict[tuple[str, str], float] = defaultdict(float)
    for record in records:
        if record["kind"] == "fixture":
            fixtures[record["name"], record["where"]] += record["seconds"]
    users = Counter(
        (name, where)
        for test in tests
        for name in test["shared"]
        for where in _places(test["name"])
    )
    return [
        Measured(
            test["name"],
            test["seconds"]
            + sum(
                fixtures[name, where] / users[name, where]
                for name in test["shared"]
                for where in _places(test["name"])
                if (name, where) in fixtures
            ),
            test["is_long"],
            test["uses_shared_cluster"],
            test["needs_root"],
        )
        for test in tests
    ]


def _places(node: str) -> tuple[str, str]:
    """Return where a shared fixture of this test may belong: its file or the whole session."""
    return file_of(node), ""


def merged(costs: Costs, tests: Sequence[Measured], exists: Callable[[str], bool]) -> Costs:
    """Return the costs with new measurements, without tests that exist no more.

    A measured test stays in its tier where its cost allows it. Of a dear test without a tier the
    first form is a story; the other forms are left to `all`.
    """
    nodes = {test.node for test in tests}
    stories = _others(costs.stories, nodes, exists)
    long = _others(costs.long, nodes, exists)
    rest = _others(costs.all, nodes, exists)
    was_dear = {*costs.stories, *costs.long, *costs.all}
    remeasured = {
        file_of(test.node) for test in tests if test.node not in was_dear and not test.is_long
    }
    fast = {f: s for f, s in costs.fast.items() if f not in remeasured and exists(f)}
    has_story = {function_of(node) for node in (*stories, *(nodes & costs.stories.keys()))}
    for test in tests:
        node = test.node
        if test.is_long and node in costs.long:
            long[node] = test.seconds
        elif test.is_long:
            rest[node] = test.seconds
        elif not _is_dear(test, node in was_dear):
            fast[file_of(node)] = fast.get(file_of(node), 0.0) + test.seconds
        elif node in costs.stories or function_of(node) not in has_story:
            stories[node] = test.seconds
            has_story.add(function_of(node))
        else:
            rest[node] = test.seconds
    # Root itself, who measures, cannot see which tests need it.
    need_root = {
        *filter(exists, costs.need_root),
        *(test.node for test in tests if test.needs_root),
    }
    return Costs(fast, stories, long, rest, frozenset(need_root))


def _others(
    costs: Mapping[str, float], nodes: Set[str], exists: Callable[[str], bool]
) -> dict[str, float]:
    return {node: s for node, s in costs.items() if node not in nodes and exists(node)}


def exists(node: str) -> bool:
    """Return whether the file of a node id exists, and the function in it."""
    path = PROJECT / file_of(node)
    names = function_of(node).split("::")[1:]
    if not path.exists():
        return False
    text = path.read_text(encoding="utf-8")
    # Hypothesis writes `runTest` of a state machine.
    return all(name == "runTest" or re.search(rf"\b{name}\b", text) for name in names)


def _is_dear(test: Measured, was_dear: bool) -> bool:
    if test.uses_shared_cluster or test.seconds > DEAR_SECONDS:
        return True
    return was_dear and test.seconds > CHEAP_SECONDS


def written(costs: Costs) -> str:
    """Return the text of costs.json."""

    def rounded(seconds: Mapping[str, float], digits: int) -> dict[str, float]:
        return {name: round(s, digits) for name, s in sorted(seconds.items())}

    content = {
        "fast": rounded(costs.fast, 2),
        "stories": rounded(costs.stories, 1),
        "long": rounded(costs.long, 1),
        "all": rounded(costs.all, 1),
        "need_root": sorted(costs.need_root),
    }
    return json.dumps(content, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the tests of some tiers, or of some files of them, and write tests/costs.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("tiers", nargs="+", choices=TIERS)
    parser.add_argument("--files", nargs="*", default=(), help="only these files of tests")
    parser.add_argument("--records", type=Path, help="merge what an earlier run measured here")
    flags = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.records or Path(temporary)
        if not flags.records:
            for tier in flags.tiers:
                command = [sys.executable, "-m", "pytest", "-q", f"--tier={tier}", "-n", "2"]
                command += ["--dist", "loadfile", "--no-loadscope-reorder"]
                command += [f"--costs-into={folder}", *flags.files]
                subprocess.run(command, cwd=PROJECT, check=False)
        costs = merged(read_costs(), measured(read_records(folder)), exists)
    COSTS.write_text(written(costs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
