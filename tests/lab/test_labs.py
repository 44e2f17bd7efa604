"""Labs start as requested, and leave nothing behind, however they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import network
from tests.lab.cgroups import nodes
from tests.lab.commands import LabError
from tests.lab.lab import COMING_UP_SECONDS, Lab, register, remove
from tests.lab.oddities import Oddity
from tests.lab.places import PROJECT, Places
from tests.lab.seed import ENVIRONMENTS, build_seed, seed_folder
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

FULL = "rpi01"
WITHOUT_PYTHON = "rpi02"
OLD = "rpi03"
LATE = "rpi04"
SEEDED = "rpi05"
KEY = "of-the-lab-tests"


@pytest.fixture(scope="module")
def odd_lab(lab_can_run: None) -> Iterator[Lab]:
    def build(root: Path) -> None:
        environment = root / ENVIRONMENTS / KEY
        (environment / "bin").mkdir(parents=True)
        (environment / ".complete").touch()

    wrong = {
        FULL: Oddity.FULL_CARD,
        WITHOUT_PYTHON: Oddity.WITHOUT_PYTHON,
        OLD: Oddity.WRONG_ARCHITECTURE,
        LATE: Oddity.WRONG_CLOCK,
    }
    try:
        with Lab.up(5, oddities_of=wrong, seeds={SEEDED: build_seed(build, KEY)}) as lab:
            yield lab
    finally:
        subprocess.run(
            ["rm", "-rf", seed_folder(KEY), seed_folder(KEY).with_suffix(".lock")], check=True
        )


def test_a_full_card_takes_no_more(odd_lab: Lab) -> None:
    free_kib = odd_lab.ssh(FULL, "df --output=avail / | tail -1").stdout
    assert int(free_kib) < 100 << 10
    written = odd_lab.ssh(FULL, "head -c 100M /dev/zero >big; echo $?")
    assert written.stdout != "0\n"
    odd_lab.node(FULL).crash()
    odd_lab.node(FULL).boot()
    odd_lab.node(FULL).wait_until_reachable()
    assert odd_lab.ssh(FULL, "test -s big; echo $?").stdout == "0\n"


def test_a_node_without_python_has_a_shell(odd_lab: Lab) -> None:
    assert odd_lab.ssh(WITHOUT_PYTHON, "python3 -c 0; echo $?").stdout == "126\n"


def test_a_32_bit_userland_says_so(odd_lab: Lab) -> None:
    shell = odd_lab.ssh(OLD, "uname -m; getconf LONG_BIT; dpkg --print-architecture").stdout
    python = odd_lab.ssh(
        OLD,
        "python3 -c 'import platform, struct; print(platform.machine(), struct.calcsize(\"P\"))'",
    ).stdout
    assert (shell, python) == ("armv7l\n32\narmhf\n", "armv7l 4\n")
    assert "x86_64" not in odd_lab.ssh(OLD, "uname -a").stdout


def test_a_wrong_clock_is_wrong_in_the_shell_and_in_python(odd_lab: Lab) -> None:
    right, late = (int(odd_lab.ssh(node, "date +%s").stdout) for node in (SEEDED, LATE))
    python = float(odd_lab.ssh(LATE, "python3 -c 'import time; print(time.time())'").stdout)
    assert 25 * 3600 < right - late < 27 * 3600
    assert abs(python - late) < 60


def test_a_seeded_node_has_the_environment_and_can_remove_it(odd_lab: Lab) -> None:
    look = f"ls -A /{ENVIRONMENTS}/{KEY}"
    assert odd_lab.ssh(SEEDED, look).stdout == ".complete\nbin\n"
    odd_lab.ssh(SEEDED, f"sudo rm -r /{ENVIRONMENTS}/{KEY}")
    assert odd_lab.ssh(SEEDED, look, check=False).returncode == 2
    assert (seed_folder(KEY) / ENVIRONMENTS / KEY / ".complete").exists()


def test_a_second_lab_of_the_same_name_is_refused_in_one_line(odd_lab: Lab) -> None:
    with pytest.raises(
        LabError,
        match=r"^lab '\w+' is up already in .*: `python -m tests.lab down` ends it, [^\n]*$",
    ):
        Lab.up(1)
    with pytest.raises(
        LabError, match=r"^the lab needs 192.168.1.0/24 for itself, but this machine has [^\n]*$"
    ):
        Lab.up(1, name="another")
    assert left("another") == []


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


def test_what_is_left_of_a_lab_that_has_ended_is_cleared_away(lab_can_run: None) -> None:
    places = Places.of("trial")
    register(places)
    with pytest.raises(LabError, match="is up already"):
        register(places)  # may be coming up
    places.run.mkdir(parents=True)
    long_ago = time.time() - 2 * COMING_UP_SECONDS
    os.utime(places.registered, (long_ago, long_ago))
    register(places)
    assert not places.run.exists()
    assert places.registered.exists()
    remove(places)
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
