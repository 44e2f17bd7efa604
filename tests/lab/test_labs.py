"""Labs start as requested, and leave nothing behind, however they end."""

import os
import signal
import subprocess
import sys

import pytest

from tests.lab import network
from tests.lab.cgroups import nodes
from tests.lab.lab import remove
from tests.lab.places import PROJECT, Places
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_an_interrupted_up_leaves_nothing(lab_can_run: None) -> None:
    """Also after a kill before the clean-up: then `down` cleans up."""
    environment = {**os.environ, "PSCLUSTER_LAB": "trial"}
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with subprocess.Popen(
            ["unshare", "--net", sys.executable, "-m", "tests.lab", "up", "6"],
            cwd=PROJECT,
            env=environment,
        ) as up:
            eventually(lambda: len(nodes(Places.of("trial"))) > 2, "some nodes are made")
            up.send_signal(number)
            assert up.wait(60) == code
        if number == signal.SIGKILL:
            remove(Places.of("trial"))
        assert left("trial") == []


def left(name: str) -> list[str]:
    places = Places.of(name)
    paths = (
        places.run,
        places.registered,
        places.told,
        places.cgroup("memory"),
        places.cgroup("unified"),
    )
    folders = [str(path) for path in paths if path.exists()]
    return [*network.left(places), *nodes(places), *folders]
