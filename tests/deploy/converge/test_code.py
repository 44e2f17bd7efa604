"""The releases of a node: which one it is to have, and when the old ones go."""

from dataclasses import replace

import pytest

from deploy.cluster.fleet import Fleet
from deploy.converge.code import keep_release, prune
from tests.deploy.converge.pi import untouched
from tests.deploy.converge.played_machine import ENVIRONMENT, code_wheel
from tests.deploy.local_shell import Heard

OLD, NEW = "0" * 16, "1" * 16
LISTING = f"""\
current {NEW}
environment {ENVIRONMENT}
release {OLD} {ENVIRONMENT} 1
release {NEW} {ENVIRONMENT} 2
unchanged: listed
"""


@pytest.mark.parametrize(
    ("units", "removed"),
    [
        ("", True),
        ("pscluster-job@20261123T0500-train.service loaded active running a job\n", False),
    ],
)
def test_old_releases_stay_while_a_job_runs(units: str, removed: bool) -> None:
    """Its process may be of one of them."""
    node = Heard("rpi01", {"list-units": units, OLD: "changed: removed 1\n", "": LISTING})
    with Fleet([node], parallel=1) as fleet:
        assert prune(fleet, ["rpi01"], 1) == {"rpi01": "changed: removed 1\n" if removed else ""}
    assert node.heard(OLD) == removed


def test_a_release_with_another_environment_is_not_the_one_that_is_wanted() -> None:
    wheel = code_wheel(NEW)
    there = untouched(release_environments={NEW: ENVIRONMENT})
    assert [*keep_release(there, wheel, ENVIRONMENT)] == []
    for environments in ({}, {OLD: ENVIRONMENT}, {NEW: "f" * 16}):
        facts = replace(there, release_environments=environments)
        (change,) = keep_release(facts, wheel, ENVIRONMENT)
        assert (change.kind, change.subject) == ("release", NEW)
