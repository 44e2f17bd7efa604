"""A role that root starts is another account before it serves, for good."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cluster.inventory.templates import local_inventory
from cluster.server.accounts import ROLES_ACCOUNT, why_root
from cluster.server.probe import answers
from tests.habits import needs
from tests.server.processes import HANG_SECONDS, PROJECT, command, free_ports, launch, notified, running
from tests.server.test_role_process import await_end, get

AS_ROLES = ("--guard", "loopback", "--account", str(ROLES_ACCOUNT))
UNPRIVILEGED = {
    "Uid": [str(ROLES_ACCOUNT)] * 4,
    "Gid": [str(ROLES_ACCOUNT)] * 4,
    "Groups": [],
    "CapPrm": ["0" * 16],
    "CapEff": ["0" * 16],
    "CapAmb": ["0" * 16],
    "NoNewPrivs": ["1"],
}


@pytest.fixture
def as_root() -> None:
    needs.root("becoming another account")


def privileges(status: Path) -> dict[str, list[str]]:
    """What proc(5) says of a process or a thread, by the names above."""
    said = (line.partition(":") for line in status.read_text().splitlines())
    return {name: value.split() for name, _, value in said if name in UNPRIVILEGED}


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("server", ["lean", "stock"])
def test_every_thread_of_a_role_has_no_privileges_and_it_serves(server: str) -> None:
    # The socket of its readiness lies in a folder that this account cannot enter.
    with running("ps_node", *AS_ROLES, "--server", server) as role:
        threads = list(Path(f"/proc/{role.process.pid}/task").iterdir())
        assert len(threads) > 10
        # Those that TensorFlow started before are the same as those that come later.
        for thread in threads:
            assert privileges(thread / "status") == UNPRIVILEGED
        assert answers("127.0.0.1", role.port, HANG_SECONDS)
        assert get(role, "/ready") == (200, "ready\n")
        assert "pscluster_process_anonymous_bytes" in get(role, "/metrics")[1]
        role.process.terminate()
        said = role.output()
    assert f"and of its accounts uid {ROLES_ACCOUNT} and root" in said
    assert "stopped by SIGTERM" in said


@pytest.mark.usefixtures("as_root")
def test_a_role_that_became_another_account_still_dies_with_its_parent() -> None:
    port, metrics_port = free_ports(2)
    flags = ["--task", "0", "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port)]
    with notified() as (address, wait):
        parent = subprocess.Popen(
            ["sh", "-c", '"$@" & echo $!; wait', "sh", *command("ps_node", [*flags, *AS_ROLES, "--die-with-parent"])],
            cwd=PROJECT, env={**os.environ, "NOTIFY_SOCKET": address}, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        descriptor = os.pidfd_open(pid)
        try:
            assert wait(parent)
            assert privileges(Path(f"/proc/{pid}/status")) == UNPRIVILEGED
            parent.kill()
            parent.wait()
            assert await_end(descriptor)
        finally:
            if not await_end(descriptor, 0):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
            parent.stdout.close()


@pytest.mark.usefixtures("as_root")
def test_root_that_may_not_change_its_account_stays_root_and_says_why(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory(workers=1))
    fixed = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid")
    with notified() as (address, wait):
        process = launch("ps_node", ["--inventory", str(inventory), "--task", "0"], {"NOTIFY_SOCKET": address}, fixed)
        try:
            assert wait(process)
            assert privileges(Path(f"/proc/{process.pid}/status"))["Uid"] == ["0"] * 4
        finally:
            process.terminate()
            said = process.communicate(timeout=HANG_SECONDS)[0]
    assert "runs as root: root may not change its account here: grant CAP_SETUID and CAP_SETGID" in said


WHOLE, OWN = "0 0 4294967295\n", "0 1000 1\n"
ALL, NO_SETUID = "CapEff:\t000001ffffffffff\n", "CapEff:\t000001ffffffff7f\n"


@pytest.mark.parametrize(
    ("status", "uids", "gids", "groups", "said"),
    [
        (ALL, WHOLE, WHOLE, "allow", None),
        (ALL, "0 1000 1\n1 100000 65536\n", "0 1000 1\n1 100000 65536\n", "allow", None),
        (NO_SETUID, WHOLE, WHOLE, "allow", "grant CAP_SETUID"),
        (ALL, OWN, WHOLE, "allow", "this user namespace has no uid"),
        (ALL, WHOLE, OWN, "allow", "this user namespace has no uid"),
        (ALL, WHOLE, WHOLE, "deny", "forbids setgroups"),
    ],
)
def test_what_keeps_root_from_the_account(
    tmp_path: Path, status: str, uids: str, gids: str, groups: str, said: str | None
) -> None:
    for name, content in {"status": status, "uid_map": uids, "gid_map": gids, "setgroups": groups}.items():
        (tmp_path / name).write_text(content)
    found = why_root(tmp_path)
    assert found is None if said is None else said in (found or "")
