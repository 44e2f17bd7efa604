"""Releases that nobody needs: what keeps a node from being tidied names it, and ends nothing."""

from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from deploy.converge.code import prune
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import GREETING, Sshd, running_sshd

pytestmark = pytest.mark.usefixtures("sudo")


def test_a_listing_with_a_start_file_s_words_in_it_removes_nothing_and_is_told(
    sshd: Sshd, tmp_path: Path
) -> None:
    with (
        running_sshd(tmp_path, GREETING) as greeting,
        fleet_of(
            trusting(tmp_path, sshd, greeting), [("quiet", sshd), ("greets", greeting)]
        ) as fleet,
    ):
        done = prune(fleet, ["quiet", "greets"], 3)
    assert done["quiet"] == ""
    problem = done["greets"]
    assert isinstance(problem, ClusterError)
    assert str(problem).startswith(
        "greets: expected a line of a listing of releases, got 'welcome to this Pi': does a start"
        " file of the account"
    )
