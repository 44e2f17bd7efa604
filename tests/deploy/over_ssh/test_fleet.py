"""Many nodes at once, on a real sshd."""

import re
import signal
import threading
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.common.command_line import shell
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, running_sshd
from tests.deploy.playing import eventually


@pytest.fixture
def names() -> list[str]:
    return [f"rpi{number:02d}" for number in range(1, 7)]


def test_the_pool_is_as_large_as_the_inventory_says(
    names: list[str], sshd: Sshd, tmp_path: Path
) -> None:
    """Each node takes a place and gives it back; never more than two are taken."""
    (tmp_path / "places").mkdir()
    script = (
        f"cd {tmp_path}; mkdir places/$$ && ls places | wc -l >>seen; until [ $(ls places | wc -l)"
        " -ge 2 ] || [ $(wc -l <seen) -ge 5 ]; do sleep 0.02; done; rmdir places/$$"
    )
    with fleet_of(trusting(tmp_path, sshd), [(name, sshd) for name in names], parallel=2) as fleet:
        results = fleet.each(lambda node: node.run(shell(script), deadline_seconds=30.0).ok)
    assert list(results) == names
    counts = (tmp_path / "seen").read_text().split()
    assert (max(counts), len(counts)) == ("2", 6)


def test_logins_beyond_what_the_server_takes_at_once_are_tried_again(
    names: list[str], tmp_path: Path
) -> None:
    with running_sshd(tmp_path, "MaxStartups=1:100:1") as busy:
        with fleet_of(trusting(tmp_path, busy), [(name, busy) for name in names]) as fleet:
            results = fleet.each(lambda node: node.run(["echo", "here"]).text)
        assert results == dict.fromkeys(names, "here\n")
        assert re.search("MaxStartups|drop connection", (tmp_path / "sshd.log").read_text())


def test_an_interrupt_does_not_wait_for_what_the_nodes_do(sshd: Sshd, tmp_path: Path) -> None:
    names = ["rpi01", "rpi02"]
    script = (
        f"echo >>{tmp_path}/begun; until [ -e {tmp_path}/end ]; do sleep 0.02; done; echo"
        f" >>{tmp_path}/ended"
    )

    def on_both(file: str) -> None:
        path = tmp_path / file
        eventually(lambda: path.exists() and path.read_text() == "\n\n", file)

    def work(node: Connector) -> None:
        try:
            node.run(shell(script), deadline_seconds=600.0)
        except ClusterError:
            node.run(["touch", f"{tmp_path}/another"])

    def interrupt() -> None:
        on_both("begun")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    person = threading.Thread(target=interrupt)
    with fleet_of(trusting(tmp_path, sshd), [(name, sshd) for name in names]) as fleet:
        person.start()
        with pytest.raises(KeyboardInterrupt):
            fleet.each(work)
    person.join()
    assert not (tmp_path / "ended").exists()
    assert not (tmp_path / "another").exists()
    (tmp_path / "end").touch()
    on_both("ended")
