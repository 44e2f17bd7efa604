"""A service in its cage reads and writes its own files, keeps its ports and starts no program."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.cage import landlock
from deploy.common.project import environment_for_any_folder
from tests.habits import needs
from tests.recognise.service.exports import export
from tests.recognise.service.running import command, service, state_of

ATTACKS = """
import os, socket, sys
from recognise.service import __main__ as service
outside = sys.argv.pop()
tries = {
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "read": lambda: open(outside),
    "list": lambda: os.listdir("/var"),
    "write": lambda: open("/var/tmp/pscluster-written", "w"),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "connect": lambda: socket.create_connection(("127.0.0.1", 20009)),
    "bind": lambda: socket.socket().bind(("127.0.0.1", 20009)),
}
def run(served):
    served.close()
    for name, attempt in tries.items():
        try:
            attempt()
        except PermissionError:
            print(name, end=" ")
    print(len(os.listdir("/proc/self/task")))
service.asyncio.run = run
sys.exit(service.main())
"""


@pytest.mark.parametrize("becomes", [True, False], ids=["an account", "root that stays"])
def test_a_service_gets_at_nothing_outside_of_its_rights(tmp_path: Path, becomes: bool) -> None:
    export(tmp_path / "one")
    outside = tmp_path / "outside"
    outside.write_text("secret")
    bound: tuple[str, ...] = ()
    if not becomes:
        needs.root("root that may not change its account")
        bound = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid", "--")
    _, _, _, *words = command(state_of(tmp_path), "--model", str(tmp_path / "one"))
    done = subprocess.run(
        [*bound, sys.executable, "-c", ATTACKS, *words, str(outside)],
        env=environment_for_any_folder(),
        capture_output=True,
        text=True,
        check=False,
    )
    refused = "execute"
    if landlock.abi():
        refused += " read list write"
        if becomes:  # the kernel shows every process to root, who has CAP_PERFMON
            refused += " environment"
    if landlock.abi() >= landlock.PORTS:
        refused += " connect bind"
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{refused} 1\n", done.stderr


def test_a_service_whose_nursery_has_ended_ends(tmp_path: Path) -> None:
    """It could start no model any more; systemd starts it again."""
    export(tmp_path / "one")
    with service(tmp_path, "--model", str(tmp_path / "one")) as running:
        (nursery,) = psutil.Process(running.process.pid).children()
        nursery.kill()
        assert running.process.wait(30) == 0
