"""Where a rollback goes, and what each node needs for it."""

import subprocess

import pytest

from deploy.converge.rollback_plan import Need, Rollback, Standing, goes_on, read_runs, runs_script, target
from deploy.release.history import Installed, Release

ENVIRONMENT = "e" * 16


def standing(*history: str, runs: str | None = None, environments: tuple[str, ...] = (ENVIRONMENT,)) -> Standing:
    """A node with these releases, the current one first, whose one role runs `runs`, or the current one."""
    releases = tuple(Release(key, ENVIRONMENT, 0, 100 - place) for place, key in enumerate(history))
    current = history[0] if history else None
    return Standing(Installed(current, releases, frozenset(environments)), {"a.service": runs or current})


def test_most_nodes_say_where_to_go() -> None:
    missed_one = standing("old", "oldest")
    nodes = {"a": missed_one, "b": standing("new", "old"), "c": standing("new", "old", "oldest")}
    assert target(nodes, "a") == "old"
    assert missed_one.need("old") is Need.NOTHING


def test_between_equals_the_coordinators_node_decides() -> None:
    nodes = {"a": standing("new", "old"), "b": standing("old", "new")}
    assert target(nodes, "a") == "old"
    assert target(nodes, "b") == "new"
    assert target(nodes, "another one") == "old"
    assert target({**nodes, "c": standing("old", "new")}, "a") == "new"


def test_nowhere_to_go() -> None:
    assert target({}, "a") is None
    assert target({"a": standing(), "b": standing("new")}, "a") is None
    assert target({"a": standing("new", "old", environments=())}, "a") is None


def test_what_a_node_needs() -> None:
    assert standing("new", "old").need("old") is Need.FLIP
    assert standing("old", "new", runs="new").need("old") is Need.RESTART
    assert standing("old", "new").need("old") is Need.NOTHING
    assert standing("new", "oldest").need("old") is Need.RELEASE
    assert standing("new", "old", environments=()).need("old") is Need.RELEASE
    assert Standing(standing("old").installed, {"a.service": None}).need("old") is Need.RESTART
    assert Standing(standing("old").installed, {}).need("old") is Need.NOTHING


def test_it_is_over_when_somebody_deployed_since() -> None:
    begun = Rollback("old", {"a": "new", "b": "new", "off": "new"}, ("b",))
    assert goes_on(begun, {"a": standing("old", "new"), "b": standing("new", "old"), "c": standing("else")})
    assert goes_on(begun, {"a": standing()})
    assert not goes_on(begun, {"a": standing("newest", "new", "old"), "b": standing("new", "old")})


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


def test_the_question_is_a_shell_s() -> None:
    script = runs_script(["a b.service", "c.service"])
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
