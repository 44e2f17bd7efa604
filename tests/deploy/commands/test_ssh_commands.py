"""The command lines of `connection: ssh` as somebody types them, on nodes that are one real sshd
without systemd."""

import getpass
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from core.control.own_state import state_of
from core.inventory import addresses
from deploy.cluster.connector import Connector
from deploy.commands import machine_actions
from tests.deploy.over_ssh.sshd import (
    ACCOUNT,
    Sshd,
    new_key,
    sshd_with_an_account,
)
from tests.deploy.three_nodes import THREE, write
from tests.deploy.typed import Fab, as_process
from tests.habits import needs
from tests.tables import table

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


def fingerprint(key: Path) -> str:
    """As ssh-keygen shows it."""
    return subprocess.check_output(["ssh-keygen", "-lf", key], text=True).split()[1]


def known_hosts(folder: Path) -> Path:
    return state_of(folder / "inventory.yaml", "three") / "known_hosts"


@pytest.mark.usefixtures("three")
def test_trust_shows_fingerprints_and_pins_what_a_person_agrees_to(
    tmp_path: Path, fab: Fab, sshd: Sshd
) -> None:
    asked = fab("deploy trust").warns("nothing was pinned: `--yes` pins without a question", code=2)
    shown = fingerprint(sshd.folder / "host_key.pub")
    assert asked.stdout.count(f"{shown}  new") == 3
    asked.says("warning: pi-1, pi-2, pi-3 show the same host key, as copied cards do", code=2)
    assert not known_hosts(tmp_path).exists()
    one = fab("deploy trust --limit pi-2 --yes").stdout
    assert (one.count(f"{shown}  new"), "the same host key" in one) == (1, False)
    assert f"[127.0.0.3]:{sshd.port}" in known_hosts(tmp_path).read_text()
    added = fab("deploy trust --limit pi-3").stdout
    assert "warning: pi-3, pi-2 show the same host key" in added  # that of pi-2 is pinned
    done = fab("deploy trust --yes").says("pinned 2 in ")
    assert (done.stdout.count("  known"), done.stdout.count("  new")) == (1, 2)
    fab("deploy trust").says("all 3 are pinned in ")


def test_trust_writes_down_the_address_of_a_host_name(
    tmp_path: Path, fab: Fab, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, THREE.replace("address: 10.77.0.2,", "address: pi-2.local,"), sshd)
    names = {"pi-2.local": "10.77.0.2"}
    monkeypatch.setattr(addresses, "_resolve", names.get)
    fab("deploy trust --yes").says("pi-2: pi-2.local is 10.77.0.2\n")
    names["pi-2.local"] = "10.77.0.9"  # which no other command asks for
    fab("deploy plan --json").warns("cluster three: inventory.yaml", code=3)
    assert addresses_file(tmp_path) == {"pi-2": {"name": "pi-2.local", "address": "10.77.0.2"}}
    fab("deploy trust").says("pi-2: pi-2.local is 10.77.0.9 now, it was 10.77.0.2\n")
    assert addresses_file(tmp_path)["pi-2"]["address"] == "10.77.0.9"
    del names["pi-2.local"]
    fab("deploy trust").warns("pi-2: pi-2.local leads to no IPv4 address", code=3)


def addresses_file(folder: Path) -> dict[str, dict[str, str]]:
    text = known_hosts(folder).with_name("addresses.json").read_text()
    nodes: dict[str, dict[str, str]] = json.loads(text)["nodes"]
    return nodes


@pytest.mark.usefixtures("three")
def test_nodes_whose_keys_nobody_pinned_are_refused(fab: Fab) -> None:
    done = fab("deploy check --json")
    found = done.json(code=1)["findings"]
    lines = {one["node"]: one["line"] for one in found if one["level"] == "problem"}
    assert list(lines) == NAMES
    for line in lines.values():
        assert (
            "host key is not known: `fab deploy trust` shows the fingerprints and records" in line
        )
    assert done.stderr == "cluster three: inventory.yaml (from ./inventory.yaml)\n"


@pytest.mark.usefixtures("trusted")
def test_a_key_that_changed_is_refused_until_somebody_pins_it(
    tmp_path: Path, fab: Fab, sshd: Sshd
) -> None:
    new_key(tmp_path / "imposter")
    kind, other, *_ = (tmp_path / "imposter.pub").read_text().split()
    kept = known_hosts(tmp_path).read_text()
    changed = re.sub(r"(?m)^(\[127\.0\.0\.3\]:\d+) .*", rf"\1 {kind} {other}", kept)
    known_hosts(tmp_path).write_text(changed)
    fab("deploy status --limit pi-2").says("its host key is not the one that is pinned", code=3)
    shown = fingerprint(sshd.folder / "host_key.pub")
    was = fingerprint(tmp_path / "imposter.pub")
    fab("deploy trust").says(f"{shown}  changed, was ssh-ed25519 {was}", code=2)
    fab("deploy trust --yes").says()
    assert "pinned" not in fab("deploy status --limit pi-2").stdout


@pytest.mark.usefixtures("asked")
def test_a_start_without_fit_nodes_changes_nothing_and_can_be_tried_again(
    tmp_path: Path, fab: Fab
) -> None:
    fab("deploy start --retry").refuses("--retry: no node failed in the last deployment")
    fab("deploy start --no-jobs").says(
        "nothing was changed: ps:0 is on pi-1; coordinator:0 is on pi-1; pi-1 is the storage"
        " server",
        "3 nodes: 3 failed; 0 changed in",
        code=3,
    )
    (recap,) = known_hosts(tmp_path).with_name("deployments").glob("*-start.json")
    nodes = json.loads(recap.read_text())["nodes"]
    assert [(name, nodes[name]["state"]) for name in nodes] == [(name, "failed") for name in NAMES]
    fab("deploy start --retry --no-jobs").warns("once more: pi-1, pi-2, pi-3", code=3)
    fab("deploy start --retry --limit pi-1").refuses("--limit and --retry: give one of them")


@pytest.mark.usefixtures("trusted")
def test_what_cannot_be_meant_is_one_line(fab: Fab) -> None:
    for line, words in table("deploy/commands/tables", "test_what_cannot_be_meant_is_one_line"):
        fab(line).refuses(words)


@pytest.fixture
def resets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without a machine behind them: pi-1 serves the shared folder."""
    (tmp_path / "inventory.yaml").write_text(THREE.format(user="pi", port=22, key="none"))
    monkeypatch.setattr(machine_actions, "_reset_on", lambda node, *_: "reset")


@pytest.mark.usefixtures("resets")
def test_reset_has_a_line_a_node_and_says_what_stays(fab: Fab) -> None:
    stays = "/srv/pscluster stays with data and runs: `--with-data` removes it"
    done = fab("deploy reset --yes").says("pi-2: reset\n", "pi-3: reset\n", f"pi-1: reset; {stays}")
    done.warns("removing everything from pi-2, pi-3\nremoving everything from pi-1\n")
    assert "stays" not in fab("deploy reset --yes --with-data").says("pi-1: reset\n").stdout


@pytest.mark.usefixtures("resets")
def test_a_reset_that_is_interrupted_names_what_is_left(
    fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset_on(node: Connector, *_: object) -> str:
        if node.name == "pi-1":
            raise KeyboardInterrupt
        return "reset"

    monkeypatch.setattr(machine_actions, "_reset_on", reset_on)
    fab("deploy reset --yes").warns(
        "interrupted: pi-1 may have a part left; run it again", code=130
    )


@pytest.mark.parametrize("action", ["trust", "push", "storage", "rollback", "reset", "ssh"])
def test_actions_of_machines_are_refused_for_a_cluster_of_processes(fab: Fab, action: str) -> None:
    fab("init --local --out inventory.yaml").says()
    fab(f"deploy {action}").refuses(f"`{action}` is for machines reached over SSH")


def test_ssh_becomes_the_system_s_ssh_with_the_pinned_keys_of_any_folder(
    tmp_path: Path, sshd: Sshd, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / r'a "pi" \ 100%h'
    here.mkdir()
    monkeypatch.chdir(here)
    write(here, THREE, sshd)
    fab("deploy trust --yes").says()
    needs.tool("ssh")
    line = "deploy ssh --node pi-2 --run-command 'echo $SSH_CONNECTION; exit 7'"
    done = as_process(line, here).says(code=7)
    assert "127.0.0.3" in done.stdout.splitlines()[-1]
    known_hosts(here).write_text("")
    as_process(line, here).warns("Host key verification failed", code=255)


def test_ssh_takes_the_jump_host_of_the_configuration_and_the_named_key_alone(
    tmp_path: Path, sshd: Sshd, fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("Host gate\n    Port 2222\n")
    (tmp_path / "programs").mkdir()
    ssh = tmp_path / "programs/ssh"
    ssh.write_text(f'#!/bin/sh\nexec "{needs.tool("ssh")}" -F {tmp_path}/config "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    seen: list[str] = []
    monkeypatch.setattr(os, "execvp", lambda program, words: seen.extend(words))
    write(tmp_path, ONE.replace('key: "{key}"', 'key: "{key}", jump: {{host: gate}}'), sshd)
    fab("deploy ssh --node pi-1").says()
    assert f"ProxyJump={getpass.getuser()}@gate:2222" in seen
    assert seen[seen.index("-i") :][:4] == ["-i", str(sshd.user_key), "-o", "IdentitiesOnly=yes"]


@pytest.mark.usefixtures("asked")
def test_day_two_where_nothing_was_ever_installed(fab: Fab) -> None:
    if Path("/opt/pscluster").exists():
        needs.possible("this machine is a node of a cluster, whose roles these commands would stop")
    assert fab("deploy stop").says().stdout.splitlines()[-1] == "nothing was running"
    fab("deploy restart --role worker:0").warns("pi-2: not restarted: ", code=3)
    fab("deploy rollback").warns("pi-3: no earlier release is left to go back to", code=3)


def test_an_account_without_sudo_is_never_taken_for_a_cluster_that_does_not_run(
    tmp_path: Path, fab: Fab
) -> None:
    with sshd_with_an_account(tmp_path) as server:
        text = ONE.format(user=ACCOUNT, port=server.port, key=server.user_key)
        (tmp_path / "inventory.yaml").write_text(text)
        fab("deploy trust --yes").says()
        refused = "sudo: a password is required"
        stop = fab("deploy stop").warns(f"pi-1: not stopped: {refused}", code=3)
        assert "nothing was running" not in stop.stdout
        fab("deploy logs").warns(f"pi-1: its logs cannot be read: {refused}", code=3)
        fab("deploy check").says(
            f"{ACCOUNT} may not use sudo without a password (sudo: a password is required)",
            f"`echo '{ACCOUNT} ALL=(ALL) NOPASSWD: ALL' | sudo tee"
            f" /etc/sudoers.d/010_{ACCOUNT}-nopasswd` there",
            code=1,
        )
