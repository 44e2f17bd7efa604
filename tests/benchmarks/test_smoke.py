"""Each benchmark runs from its beginning to its summary, in the smallest size."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.beds import cpu_quota, tunnels, virtual_network
from tests.habits import needs
from tests.ran import PROJECT, python

FOLDER = PROJECT / "benchmarks"


def limited_machines() -> str:
    """Return why there can be none, with a quota and a cable each; empty where they can be."""
    return cpu_quota.why_not() or virtual_network.why_not()


WHY_NOT = {
    "forecast": cpu_quota.why_not,
    "links": virtual_network.why_not,
    "scaling": cpu_quota.why_not,
    "tunnelled": tunnels.why_not,
    "time_to_accuracy": limited_machines,
}
VECTORS = {"bytes_over_two_vectors": 1.0, "bytes_over_half_vectors": 1.0}
"""A step of ours pulls one vector and pushes one."""


def name(program: Path) -> str:
    """Return the NAME of `python -m benchmarks.NAME`."""
    return program.relative_to(FOLDER).parts[0].removesuffix(".py")


NAMES = [
    name(program)
    for program in sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")])
    if "__main__" in program.read_text(encoding="utf-8") and name(program) != "synthetic_hhar"
]


def test_make_bench_runs_every_benchmark() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    (names,) = re.findall(r"^BENCHMARKS \?= (.*)$", makefile, re.MULTILINE)
    assert sorted(names.split()) == NAMES


@pytest.mark.long
@pytest.mark.parametrize("benchmark", NAMES)
def test_each_comes_to_a_summary_without_a_hole(benchmark: str) -> None:
    needs.possible(WHY_NOT.get(benchmark, str)())
    printed = json.loads(python("-m", f"benchmarks.{benchmark}", "--smoke", "--json"))
    assert (printed["name"], printed["size"]) == (benchmark, "smoke")
    assert printed["rows"]
    assert printed["summary"]
    assert "null" not in json.dumps(printed)
    if benchmark == "wire":
        vectors = {key: printed["summary"][key] for key in VECTORS}
        assert vectors == pytest.approx(VECTORS, abs=0.1)
