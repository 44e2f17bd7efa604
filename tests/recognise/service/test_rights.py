"""A service in its cage reads and writes its own files, keeps its ports and starts no program."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.cage import landlock
from core.ground.accounts import MODELS_ACCOUNT
from core.ground.errors import UsageError
from deploy.common.project import environment_for_any_folder
from recognise.service import rights
from tests.habits import needs
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import PATH, as_json, command, served, service, state_of

ATTACKS = """
import os, socket, sys
from recognise.service import __main__ as service
port, outside = int(sys.argv.pop()), sys.argv.pop()
tries = {
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "read": lambda: open(outside),
    "list": lambda: os.listdir("/var"),
    "write": lambda: open(outside, "w"),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "connect": lambda: socket.create_connection(("127.0.0.1", port)),
    "bind": lambda: socket.socket().bind(("127.0.0.1", port)),
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


def test_a_service_gets_at_nothing_outside_of_its_rights(tmp_path: Path) -> None:
    export(tmp_path / "one")
    outside = tmp_path / "outside"
    outside.write_text("secret")
    _, _, _, *words = command(state_of(tmp_path), "--model", str(tmp_path / "one"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", ATTACKS, *words, str(outside), str(port)],
            env=environment_for_any_folder(),
            capture_output=True,
            text=True,
            check=False,
        )
    refused = "execute"
    if landlock.abi():
        refused += " read list write environment"
    if landlock.abi() >= landlock.PORTS:
        refused += " connect bind"
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{refused} 1\n", done.stderr
    assert outside.read_text() == "secret"


def privileges(process: psutil.Process) -> set[tuple[str, ...]]:
    """The account and the capabilities of every thread, and whether it may gain others."""
    found = set()
    for thread in process.threads():
        status = Path(f"/proc/{process.pid}/task/{thread.id}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        values = [lines[name].split()[0] for name in ("Uid", "NoNewPrivs", *CAPABILITIES)]
        found.add(tuple(values))
    return found


CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")
NONE = ("0" * 16,) * len(CAPABILITIES)
BOUND = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid", "--")


@pytest.mark.parametrize(
    ("before", "models"),
    [((), str(MODELS_ACCOUNT)), (BOUND, "0")],
    ids=["as it is", "that may not change its account"],
)
def test_root_that_serves_has_no_capability(
    tmp_path: Path, before: tuple[str, ...], models: str
) -> None:
    needs.root("a service that gives root's capabilities up")
    with served(tmp_path, before=before) as running:
        assert privileges(psutil.Process(running.process.pid)) == {("0", "1", *NONE)}
        (nursery,) = psutil.Process(running.process.pid).children()
        for each in (nursery, *nursery.children()):
            assert privileges(each) == {(models, "1", *NONE)}
        with running.client() as client:
            answer = client.post(f"{PATH}/infer", json=as_json(windows(1)))
            assert answer.status_code == 200
            assert client.get("/page/style.css").status_code == 200


def test_root_in_a_folder_of_another_account_is_one_line(tmp_path: Path) -> None:
    needs.root("a folder of another account")
    export(tmp_path / "one")
    home = tmp_path / "alice"
    home.mkdir(mode=0o700)
    os.chown(home, 1234, 1234)
    project = home / "roots"
    project.mkdir()
    done = subprocess.run(
        command(state_of(project), "--model", str(tmp_path / "one")),
        env=environment_for_any_folder(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"{home}" in line
    assert "serve as that account" in line


def test_a_key_beside_everything_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [*rights.around([f"{tmp_path}/own/key.pem"])] == [tmp_path / "own"] * 2
    with pytest.raises(UsageError, match="a folder of its own"):
        list(rights.around([f"{tmp_path}/key.pem"]))


def test_a_service_whose_nursery_has_ended_ends(tmp_path: Path) -> None:
    """It could start no model any more; systemd starts it again."""
    export(tmp_path / "one")
    with service(tmp_path, "--model", str(tmp_path / "one")) as running:
        (nursery,) = psutil.Process(running.process.pid).children()
        nursery.kill()
        assert running.process.wait(30) == 0
