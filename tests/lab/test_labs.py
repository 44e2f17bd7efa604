"""Labs start as requested, and leave nothing behind, however they end."""

import os
import signal
import subprocess
import sys

import pytest

from tests.deploy.playing import eventually
from tests.lab import network
from tests.lab.cgroups import nodes
from tests.lab.lab import remove
from tests.lab.places import PROJECT, Places

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_an_interrupted_up_leaves_nothing(lab_can_run: None) -> None:
    """Also after a kill before the clean-up: then `down` cleans up."""
    places = Places.of("trial")
    up = ["unshare", "--net", sys.executable, "-m", "tests.lab", "up", "6"]
    environment = {**os.environ, "PSCLUSTER_LAB": places.lab}
    groups = (places.cgroup("memory"), places.cgroup("unified"))
    folders = (places.run, places.registered, places.told, *groups)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with subprocess.Popen(up, cwd=PROJECT, env=environment) as process:
            eventually(lambda: len(nodes(places)) > 2, "some nodes are made")
            process.send_signal(number)
            assert process.wait(60) == code
        if number == signal.SIGKILL:
            remove(places)
        assert network.left(places) == nodes(places) == []
        assert [folder for folder in folders if folder.exists()] == []
