"""Where a rollback goes, and what each node needs for it."""

from dataclasses import replace
from typing import Any

from deploy.converge.recap import (
    Need,
    Rollback,
    Standing,
    goes_on,
    read_runs,
    target,
)
from deploy.release.scripts import Installed, Release
from tests.deploy.converge.tables import rows

ENVIRONMENT = "e" * 16


def standing(said: str) -> Standing:
    """A node with these releases, the current one first, which its one role runs."""
    history = said.removesuffix(" incomplete").split()
    releases = tuple(Release(key, ENVIRONMENT, 0, 100 - place) for place, key in enumerate(history))
    current = next(iter(history), None)
    environments = frozenset[str]() if said.endswith("incomplete") else frozenset({ENVIRONMENT})
    return Standing(Installed(current, releases, environments), {"a.service": current})


@rows("targets")
def test_where_it_goes(row: Any) -> None:
    nodes = dict(zip("abc", map(standing, row["nodes"]), strict=False))
    assert target(nodes, row["coordinator"]) == row["goes"]


@rows("needs")
def test_what_a_node_needs(row: Any) -> None:
    node = standing(row["node"])
    assert replace(node, runs=row.get("runs", node.runs)).need("old") is Need[row["needs"]]


def test_it_is_over_when_somebody_deployed_since() -> None:
    begun = Rollback("old", {"a": "new", "b": "new", "off": "new"}, ("b",))
    on_its_way = {"a": standing("old new"), "b": standing("new old")}
    assert goes_on(begun, {**on_its_way, "c": standing("else")})
    assert goes_on(begun, {"a": standing("")})
    assert not goes_on(begun, {**on_its_way, "a": standing("newest new old")})


@rows("runs")
def test_what_a_role_runs_is_read(row: Any) -> None:
    found = read_runs(f"hello\n{row['line']}\n", ["a.service"])
    assert found == {"a.service": row["release"]}
