"""The releases of a node: which one it is to have, and when the old ones go."""

from dataclasses import replace
from typing import Any

import pytest

from deploy.cluster.connector import CommandResult
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
from deploy.converge.code import UnpackedRelease, prune
from tests.deploy.converge.pi import untouched
from tests.deploy.converge.played_machine import ENVIRONMENT, code_wheel

OLD, NEW = "0" * 16, "1" * 16
LISTING = f"""\
current {NEW}
environment {ENVIRONMENT}
release {OLD} {ENVIRONMENT} 1
release {NEW} {ENVIRONMENT} 2
unchanged: listed
"""


class Node(Local):
    """A node with two releases and these units; it notes the keys that it is to remove."""

    def __init__(self, units: str) -> None:
        super().__init__("rpi01")
        self.removed: list[str] = []
        self._units = units

    def run(self, words: Any, **how: Any) -> CommandResult:
        text = " ".join(map(str, words))
        if "list-units" in text:
            answer = self._units
        elif OLD in text:
            self.removed.append(OLD)
            answer = "changed: removed 1\n"
        else:
            answer = LISTING
        return CommandResult("", 0, answer.encode(), "", 0.0)


@pytest.mark.parametrize(
    ("units", "removed"),
    [("", [OLD]), ("pscluster-job@20261123T0500-train.service loaded active running a job\n", [])],
)
def test_old_releases_stay_while_a_job_runs(units: str, removed: list[str]) -> None:
    """Its process may be of one of them."""
    node = Node(units)
    with Fleet([node], parallel=1) as fleet:
        assert prune(fleet, ["rpi01"], 1) == {"rpi01": "removed 1" if removed else ""}
    assert node.removed == removed


def test_a_release_with_another_environment_is_not_the_one_that_is_wanted() -> None:
    wheel = code_wheel(NEW)
    wanted = UnpackedRelease(wheel, ENVIRONMENT)
    there = untouched(release_environments={NEW: ENVIRONMENT})
    assert wanted.changes(there) == ()
    for environments in ({}, {OLD: ENVIRONMENT}, {NEW: "f" * 16}):
        (change,) = wanted.changes(replace(there, release_environments=environments))
        assert (change.kind, change.subject) == ("release", NEW)
