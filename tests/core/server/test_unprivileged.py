"""A role that root starts is another account before it serves, for good."""

from pathlib import Path

import pytest

from core.ground.accounts import ROLES_ACCOUNT, why_root
from core.inventory.templates import local_inventory
from core.server.sockets import answers
from tests.core.server.processes import HANG_SECONDS, child_of_a_shell, ready, running
from tests.habits import needs
from tests.tables import table

AS_ROLES = ("--guard", "loopback", "--account", str(ROLES_ACCOUNT))
CAPABILITIES = ("CapPrm", "CapEff", "CapAmb")
NONE = ["0" * 16]
UNPRIVILEGED = {
    "Uid": [str(ROLES_ACCOUNT)] * 4,
    "Gid": [str(ROLES_ACCOUNT)] * 4,
    "Groups": [],
    **dict.fromkeys(CAPABILITIES, NONE),
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
        assert role.ask("/ready") == (200, "ready\n")
        assert "pscluster_process_anonymous_bytes" in role.ask("/metrics")[1]
        role.process.terminate()
        said = role.output()
    assert f"and of its accounts uid {ROLES_ACCOUNT} and root" in said
    assert "stopped by SIGTERM" in said


@pytest.mark.usefixtures("as_root")
def test_a_role_that_became_another_account_still_dies_with_its_parent() -> None:
    with child_of_a_shell("ps_node", *AS_ROLES) as child:
        assert privileges(Path(f"/proc/{child.pid}/status")) == UNPRIVILEGED
        child.parent.kill()
        assert child.ends()


@pytest.mark.usefixtures("as_root")
def test_root_that_may_not_change_its_account_has_no_capability_and_says_why(
    tmp_path: Path,
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(local_inventory(workers=1))
    fixed = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid")
    flags = ["--inventory", str(inventory), "--task", "0"]
    with ready("ps_node", flags, 0, 0, prefix=fixed) as role:
        for thread in Path(f"/proc/{role.process.pid}/task").iterdir():
            kept = privileges(thread / "status")
            assert kept["Uid"] == ["0"] * 4
            assert {name: kept[name] for name in CAPABILITIES} == dict.fromkeys(CAPABILITIES, NONE)
        role.process.terminate()
        said = role.output()
    assert (
        "runs as root: root may not change its account here: grant CAP_SETUID and CAP_SETGID"
        in said
    )


POSSIBLE = {
    "status": "CapEff:\t000001ffffffffff\n",
    "uid_map": "0 0 4294967295\n",
    "gid_map": "0 0 4294967295\n",
    "setgroups": "allow",
}
"""Files of /proc/self of a root who may become any account."""


@pytest.mark.parametrize("row", table("core/server/tables", "root stays"))
def test_what_keeps_root_from_the_account(tmp_path: Path, row: dict[str, str]) -> None:
    for name, content in (POSSIBLE | row).items():
        (tmp_path / name).write_text(content)
    found = why_root(tmp_path)
    assert row["says"] in str(found) if "says" in row else found is None
