"""The command lines of `connection: ssh` as somebody types them, on nodes that are one real sshd without systemd."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.common.project import ROOT
from deploy.release.requirements import committed, environment_key
from tests.deploy.over_ssh.sshd import ACCOUNT, Sshd, needs_sudo, new_key, running_sshd, sshd_with_an_account
from tests.deploy.three_nodes import THREE, write
from tests.deploy.typed import Fab
from tests.habits import needs

pytestmark = pytest.mark.usefixtures("one_release")

ONE = """\
schema: 1
cluster: one
connection: ssh
ssh: {{user: {user}, port: {port}, key: "{key}"}}
storage: {{server: pi-1}}
nodes:
  - {{name: pi-1, address: 127.0.0.1, roles: [storage, ps, worker, coordinator]}}
jobs: {{pi: {{samples: 1000}}}}
"""
NAMES = ["pi-1", "pi-2", "pi-3"]


def known_hosts(folder: Path) -> Path:
    return folder / ".pscluster" / "three" / "known_hosts"


@pytest.mark.usefixtures("three")
def test_trust_shows_fingerprints_and_pins_what_a_person_agrees_to(tmp_path: Path, fab: Fab, sshd: Sshd) -> None:
    asked = fab("deploy trust")
    assert asked.code == 2
    assert "nothing was pinned: `--yes` pins without a question" in asked.stderr
    shown = subprocess.check_output(["ssh-keygen", "-lf", str(sshd.folder / "host_key.pub")], text=True).split()[1]
    assert asked.stdout.count(f"{shown}  new") == 3
    assert not known_hosts(tmp_path).exists()
    assert fab("deploy trust --limit pi-2 --yes").stdout.count(f"{shown}  new") == 1
    assert f"[127.0.0.3]:{sshd.port}" in known_hosts(tmp_path).read_text()
    done = fab("deploy trust --yes")
    assert (done.code, done.stdout.count("  known"), done.stdout.count("  new")) == (0, 1, 2)
    assert "pinned 2 in " in done.stdout
    again = fab("deploy trust")
    assert again.code == 0
    assert "all 3 are pinned in " in again.stdout


def test_a_node_with_a_host_name_is_the_one_whose_key_was_pinned(tmp_path: Path, fab: Fab, sshd: Sshd) -> None:
    write(tmp_path, ONE.replace("127.0.0.1", "localhost"), sshd)
    assert fab("deploy trust --yes").code == 0
    for line in ("deploy status", "deploy stop", "deploy logs", "job list"):
        assert "host key" not in (done := fab(line)).stdout + done.stderr, line


@pytest.mark.usefixtures("three")
def test_nodes_whose_keys_nobody_pinned_are_refused(fab: Fab) -> None:
    done = fab("deploy check --json")
    assert done.code == 1
    found = json.loads(done.stdout)["findings"]
    assert [one["node"] for one in found if one["level"] == "problem"] == NAMES
    assert all("`fab deploy trust` shows the fingerprints and records them" in one["line"] for one in found)
    assert done.stderr == "cluster three: inventory.yaml (from ./inventory.yaml)\n"


@pytest.mark.usefixtures("trusted")
def test_a_key_that_changed_is_refused_until_somebody_pins_it(tmp_path: Path, fab: Fab, sshd: Sshd) -> None:
    new_key(tmp_path / "imposter")
    other = " ".join((tmp_path / "imposter.pub").read_text().split()[:2])
    lines = known_hosts(tmp_path).read_text().splitlines()
    kept = [line for line in lines if "127.0.0.3" not in line]
    known_hosts(tmp_path).write_text("\n".join([*kept, f"[127.0.0.3]:{sshd.port} {other}"]) + "\n")
    done = fab("deploy status --limit pi-2")
    assert done.code == 3
    assert "its host key is not the one that is pinned" in done.stdout
    asked = fab("deploy trust")
    assert asked.code == 2
    assert "  changed, was ssh-ed25519 SHA256:" in asked.stdout
    assert fab("deploy trust --yes").code == 0
    assert "pinned" not in fab("deploy status --limit pi-2").stdout


@pytest.mark.usefixtures("asked")
def test_check_tells_everything_at_once(fab: Fab) -> None:
    done = fab("deploy check --json")
    assert done.code == 1  # none of the addresses is this machine's
    found = {one["subject"]: one for one in json.loads(done.stdout)["findings"]}
    for name in NAMES:
        problem = found[f"{name} network"]
        assert (problem["level"], problem["node"]) == ("problem", name)
        assert "`ssh.address` is where it is logged into" in problem["line"]
    text = fab("deploy check")
    assert text.code == 1
    assert text.stdout.count("memory controller is switched off") <= 1


@pytest.mark.usefixtures("asked")
def test_plan_of_nodes_that_are_not_fit(fab: Fab) -> None:
    done = fab("deploy plan --json")
    assert done.code == 3
    plan = json.loads(done.stdout)
    assert (plan["cluster"], plan["changes"], list(plan["unfit"])) == ("three", 0, NAMES)
    assert plan["unfit"]["pi-1"]["step"] in ("network", "disk", "memory", "account", "python")
    text = fab("deploy start --dry-run --limit worker")
    assert text.code == 3
    assert text.stdout.count("unfit") == 3  # the storage server is looked at with any node


@pytest.mark.usefixtures("asked")
def test_a_start_without_fit_nodes_changes_nothing_and_can_be_tried_again(tmp_path: Path, fab: Fab) -> None:
    nothing = fab("deploy start --retry")
    assert (nothing.code, "--retry: no node failed in the last deployment" in nothing.stderr) == (2, True)
    done = fab("deploy start --no-jobs")
    assert done.code == 3
    assert "nothing was changed: ps:0 is on pi-1; coordinator:0 is on pi-1; pi-1 is the storage server" in done.stdout
    assert "3 nodes: 3 failed; 0 changed in" in done.stdout
    (recap,) = (tmp_path / ".pscluster" / "three" / "deployments").glob("*-start.json")
    kept = json.loads(recap.read_text())
    assert {name: node["state"] for name, node in kept["nodes"].items()} == dict.fromkeys(NAMES, "failed")
    again = fab("deploy start --retry --no-jobs")
    assert again.code == 3
    assert "once more: pi-1, pi-2, pi-3" in again.stderr
    both = fab("deploy start --retry --limit pi-1")
    assert (both.code, "--limit and --retry: give one of them" in both.stderr) == (2, True)


@pytest.mark.usefixtures("asked")
def test_a_monitor_concerns_its_own_node_alone(tmp_path: Path, fab: Fab, sshd: Sshd) -> None:
    assert fab("deploy monitor").code == 2  # no node has the role
    roles = "{{address: 127.0.0.4}}, roles: [worker"
    assert roles in THREE
    write(tmp_path, THREE.replace(roles, f"{roles}, monitor"), sshd)
    done = fab("deploy monitor")
    assert (done.code, "1 nodes: 1 failed; 0 changed in" in done.stdout) == (3, True), done.stdout
    assert "http://" not in done.stdout
    plan = json.loads(fab("deploy plan --json --limit monitor").stdout)
    assert "pi-3" in plan["unfit"]
    assert "pi-2" not in plan["unfit"]
    assert "monitor" in plan["phases"]


@pytest.mark.usefixtures("asked")
def test_status_of_roles_that_do_not_run(fab: Fab) -> None:
    done = fab("deploy status --json")
    assert done.code == 3
    status = json.loads(done.stdout)
    assert [node["node"] for node in status["nodes"]] == NAMES
    assert not any(node["well"] for node in status["nodes"])
    assert {role["state"] for role in status["roles"]} == {"stopped"}
    text = fab("deploy status --limit pi-3")
    assert text.code == 3
    assert "worker:1 stopped" in text.stdout
    assert "0 of 1 nodes are well" in text.stdout


MEANINGLESS: Sequence[Any] = [
    ("deploy status --limit pi-9", "--limit pi-9: expected a node or a role: pi-1, pi-2, pi-3, storage, ps,"),
    ("deploy plan --limit worker:7", "--limit worker:7: expected a node or a role"),
    ("deploy ssh", "expected one --node NAME"),
    ("deploy ssh --node pi-9", "--node pi-9: expected one of pi-1, pi-2, pi-3"),
    ("deploy logs --role worker:7", "--role worker:7: expected one of ps, worker, coordinator"),
    ("deploy restart --node pi-9", "--node pi-9: expected one of pi-1, pi-2, pi-3"),
    ("deploy reset", "nothing was removed: `--yes` removes without a question"),
    ("deploy start --json", "--json: goes with --dry-run"),
    ("deploy restart --serial many", "--serial: expected a whole number"),
]


@pytest.mark.usefixtures("trusted")
def test_what_cannot_be_meant_is_one_line(fab: Fab) -> None:
    for line, words in MEANINGLESS:
        done = fab(line)
        assert (done.code, words in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_actions_of_machines_are_refused_for_a_cluster_of_processes(tmp_path: Path, fab: Fab) -> None:
    text = "schema: 1\ncluster: here\nnodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]\n"
    (tmp_path / "inventory.yaml").write_text(text)
    for action in ("trust", "push", "storage", "rollback", "reset", "ssh"):
        done = fab(f"deploy {action}")
        assert (done.code, f"`{action}` is for machines reached over SSH" in done.stderr) == (2, True), action


def test_nodes_that_share_nothing_are_refused(tmp_path: Path, fab: Fab, sshd: Sshd) -> None:
    text = THREE.replace("storage: {{server: pi-1}}\n", "").replace("storage, ", "")
    write(tmp_path, text, sshd)
    done = fab("deploy check")
    assert done.code == 2
    assert "no section `storage`" in done.stderr


@pytest.mark.parametrize("folder", ["plain", r'a "pi" \ 100%h'])
def test_ssh_becomes_the_system_s_ssh_with_the_pinned_keys(
    tmp_path: Path, folder: str, sshd: Sshd, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / folder
    here.mkdir()
    monkeypatch.chdir(here)
    write(here, THREE, sshd)
    assert fab("deploy trust --yes").code == 0
    needs.tool("ssh")
    tool = [str(Path(sys.executable).with_name("fab")), "-r", str(ROOT), "deploy", "ssh", "--node", "pi-2"]
    words = [*tool, "--run-command", "echo $SSH_CONNECTION; exit 7"]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 7
    assert "127.0.0.3" in done.stdout.splitlines()[-1]
    known_hosts(here).write_text("")
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_plan_of_a_fit_node_changes_nothing(tmp_path: Path, fab: Fab) -> None:
    """The node has its environment: a folder mounted over /opt, which only its own sshd sees."""
    needs_sudo()
    needs.mount_namespace()
    ask = "import platform; print(platform.python_version(), platform.machine())"
    python, machine = subprocess.check_output(["/usr/bin/python3", "-c", ask], text=True).split()
    environment = tmp_path / "opt" / "pscluster" / "environments" / environment_key(committed(), python, machine)
    environment.mkdir(parents=True)
    (environment / ".complete").touch()
    script = f'mount --bind "{tmp_path}/opt" /opt && exec "$@"'
    with running_sshd(tmp_path, wrapper=("unshare", "-m", "sh", "-c", script, "sh")) as server:
        write(tmp_path, ONE, server)
        assert fab("deploy trust --yes").code == 0
        check = fab("deploy check --json")
        problems = [one["line"] for one in json.loads(check.stdout)["findings"] if one["level"] == "problem"]
        needs.possible(f"this machine is no fit node: {problems[0]}" if problems else "")
        assert check.code == 0
        before = sorted((tmp_path / "opt").rglob("*"))
        plan = fab("deploy plan --json")
        assert plan.code == 0
        made = json.loads(plan.stdout)
        assert made["unfit"] == {}
        assert made["changes"] == sum(len(nodes.get("pi-1", [])) for nodes in made["phases"].values())
        subjects = [change["subject"] for change in made["phases"]["services"]["pi-1"]]
        assert subjects[-2:] == ["pscluster-ps-0.service", "pscluster-worker-0.service"]
        assert "environment" not in {change["kind"] for change in made["phases"]["code"]["pi-1"]}
        text = fab("deploy plan")
        assert text.code == 0
        assert f"{made['changes']} to change; `fab deploy start --inventory " in text.stdout
        assert sorted((tmp_path / "opt").rglob("*")) == before


@pytest.mark.usefixtures("asked")
def test_day_two_where_nothing_was_ever_installed(fab: Fab) -> None:
    deployed = Path("/opt/pscluster").exists()
    needs.possible("this machine is a node of a cluster, whose roles these commands would stop" if deployed else "")
    stop = fab("deploy stop")
    assert (stop.code, stop.stdout.splitlines()[-1]) == (0, "nothing was running")
    restart = fab("deploy restart --role worker:0")
    assert restart.code == 3
    assert "pi-2: not restarted: " in restart.stderr
    rollback = fab("deploy rollback")
    assert rollback.code == 3
    assert [line.partition(":")[0] for line in rollback.stderr.strip().splitlines()] == NAMES
    assert "no earlier release is left to go back to" in rollback.stderr


def test_an_account_without_sudo_is_never_taken_for_a_cluster_that_does_not_run(tmp_path: Path, fab: Fab) -> None:
    with sshd_with_an_account(tmp_path) as server:
        text = ONE.format(user=ACCOUNT, port=server.port, key=server.user_key)
        (tmp_path / "inventory.yaml").write_text(text)
        assert fab("deploy trust --yes").code == 0
        stop = fab("deploy stop")
        assert stop.code == 3
        assert "pi-1: not stopped: sudo: a password is required" in stop.stderr
        assert "nothing was running" not in stop.stdout
        logs = fab("deploy logs")
        assert logs.code == 3
        assert "pi-1: its logs cannot be read: sudo: a password is required" in logs.stderr
        check = fab("deploy check")
        assert check.code == 1
        assert f"/etc/sudoers.d/010_{ACCOUNT}-nopasswd" in check.stdout
