"""Where a rollback goes, and what each node needs for it."""

import pytest

from deploy.converge.rollback_plan import (
    Need,
    Rollback,
    Standing,
    goes_on,
    read_runs,
    target,
)
from deploy.release.history import Installed, Release

ENVIRONMENT = "e" * 16


def standing(*history: str, runs: str = "", complete: bool = True) -> Standing:
    """A node with these releases, the current one first; its one role runs `runs`, or that."""
    releases = tuple(Release(key, ENVIRONMENT, 0, 100 - place) for place, key in enumerate(history))
    current = next(iter(history), None)
    environments = {ENVIRONMENT} if complete else set()
    installed = Installed(current, releases, frozenset(environments))
    return Standing(installed, {"a.service": runs or current})


OLD_NEW = standing("old", "new")
NEW_OLD = standing("new", "old")
BARE = standing()


@pytest.mark.parametrize(
    ("nodes", "coordinator", "where"),
    [
        # Most nodes say where to go.
        ([standing("old", "oldest"), NEW_OLD, standing("new", "old", "oldest")], "a", "old"),
        # Between equals the coordinator's node decides.
        ([NEW_OLD, OLD_NEW], "a", "old"),
        ([NEW_OLD, OLD_NEW], "b", "new"),
        ([NEW_OLD, OLD_NEW], "another one", "old"),
        ([NEW_OLD, OLD_NEW, OLD_NEW], "a", "new"),
        # Nowhere to go.
        ([], "a", None),
        ([BARE, standing("new")], "a", None),
        ([standing("new", "old", complete=False)], "a", None),
    ],
)
def test_where_it_goes(nodes: list[Standing], coordinator: str, where: str | None) -> None:
    assert target(dict(zip("abc", nodes, strict=False)), coordinator) == where


@pytest.mark.parametrize(
    ("node", "need"),
    [
        (standing("old", "oldest"), Need.NOTHING),
        (NEW_OLD, Need.FLIP),
        (standing("old", "new", runs="new"), Need.RESTART),
        (OLD_NEW, Need.NOTHING),
        (standing("new", "oldest"), Need.RELEASE),
        (standing("new", "old", complete=False), Need.RELEASE),
        (Standing(standing("old").installed, {"a.service": None}), Need.RESTART),
        (Standing(standing("old").installed, {}), Need.NOTHING),
    ],
)
def test_what_a_node_needs(node: Standing, need: Need) -> None:
    assert node.need("old") is need


def test_it_is_over_when_somebody_deployed_since() -> None:
    begun = Rollback("old", {"a": "new", "b": "new", "off": "new"}, ("b",))
    assert goes_on(begun, {"a": OLD_NEW, "b": NEW_OLD, "c": standing("else")})
    assert goes_on(begun, {"a": BARE})
    assert not goes_on(begun, {"a": standing("newest", "new", "old"), "b": NEW_OLD})


@pytest.mark.parametrize(
    ("line", "release"),
    [
        ("unit a.service active /opt/pscluster/releases/old", "old"),
        ("unit a.service active", None),
        ("unit a.service activating /opt/pscluster/releases/old", None),
        ("unit b.service active /opt/pscluster/releases/old", None),
        ("welcome to this Pi", None),
        ("", None),
    ],
)
def test_what_a_role_runs_is_read(line: str, release: str | None) -> None:
    assert read_runs(f"hello\n{line}\n", ["a.service"]) == {"a.service": release}
