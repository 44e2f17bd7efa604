import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeDeadlineError, NodeUnreachableError
from deploy.cluster.host_keys import PinnedKeys, ask_for_key, fingerprint
from deploy.common.command_line import quoted, shell
from tests.deploy.over_ssh.sshd import Sshd, new_key, running_sshd
from tests.habits import needs


def test_a_command_s_outcome(node: NodeConnection) -> None:
    outcome = node.run(shell("echo out; echo err >&2; exit 3"))
    assert (outcome.return_code, outcome.text, outcome.stderr) == (3, "out\n", "err\n")
    assert not outcome.ok
    assert outcome.last_lines == ("err",)


def test_what_goes_in_comes_out_whatever_its_size(node: NodeConnection) -> None:
    content = os.urandom(3_000_000)
    assert node.run(["cat"], stdin=content).stdout == content


def test_values_are_words_whatever_is_in_them(node: NodeConnection) -> None:
    awkward = "a b'c\"$(id)`id`;*\n"
    assert node.run(["printf", "%s", awkward]).text == awkward
    assert node.run(shell('printf %s "$1"', awkward)).text == awkward
    assert node.run(shell(f"printf %s {quoted(awkward)}")).text == awkward


def test_an_overdue_command_is_dead_on_the_node_too(node: NodeConnection, tmp_path: Path) -> None:
    with pytest.raises(NodeDeadlineError, match=r"node: not done within 1 s.*sleep"):
        node.run(shell('echo $$ >"$1"; sleep 1000', tmp_path / "pid"), deadline_seconds=1)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_file_is_written_whole(node: NodeConnection, tmp_path: Path) -> None:
    target = tmp_path / "with 'quotes"
    node.put(b"content", str(target), deadline_seconds=10, mode=0o640)
    assert target.read_bytes() == b"content"
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(NodeUnreachableError, match="cannot be written"):
        node.put(b"x", str(tmp_path / "missing" / "file"), deadline_seconds=10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known_hosts", "with 'quotes"]


def test_a_stream_ends_with_its_command_and_its_command_with_it(node: NodeConnection, tmp_path: Path) -> None:
    lines: list[str] = []
    assert node.stream(shell("echo one; echo two; exit 7"), lines.append) == 7
    assert lines == ["one", "two"]
    stop = threading.Event()

    def first_line(line: str) -> None:
        lines.append(line)
        stop.set()

    log = tmp_path / "log"
    log.write_text("three\n")
    assert node.stream(["tail", "-n", "+1", "-f", str(log)], first_line, stop=stop) == -1
    assert lines[-1] == "three"
    deadline = time.monotonic() + 10
    while (
        subprocess.run([needs.tool("pgrep"), "-f", f"tail -n .1 -f {log}"], stdout=subprocess.DEVNULL).returncode == 0
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_unknown_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    stranger = NodeConnection(sshd.address(), PinnedKeys(tmp_path / "known_hosts"))
    with pytest.raises(NodeUnreachableError, match=r"host key is not known: `fab deploy trust`"):
        stranger.run(["true"])


def test_a_changed_key_is_refused_and_trust_tells_both(sshd: Sshd, tmp_path: Path) -> None:
    pinned = PinnedKeys(tmp_path / "known_hosts")
    key = ask_for_key(sshd.address())
    assert pinned.standing(sshd.address(), key).standing == "new"
    pinned.record([pinned.standing(sshd.address(), key)])
    assert pinned.standing(sshd.address(), key).standing == "known"
    other = tmp_path / "other"
    other.mkdir()
    new_key(other / "host_key")
    imposter_key = (other / "host_key.pub").read_text().split()[:2]
    pinned.path.write_text(f"{sshd.address().known_as} {' '.join(imposter_key)}\n")
    with pytest.raises(NodeUnreachableError, match="not the one that is pinned"):
        NodeConnection(sshd.address(), pinned).run(["true"])
    sighting = pinned.standing(sshd.address(), key)
    assert sighting.standing == "changed"
    assert fingerprint(key) in sighting.line
    assert sighting.pinned is not None
    assert sighting.pinned in sighting.line


def test_fingerprints_are_those_of_ssh_keygen(sshd: Sshd) -> None:
    shown = subprocess.check_output(["ssh-keygen", "-lf", str(sshd.folder / "host_key.pub")], text=True)
    assert fingerprint(ask_for_key(sshd.address())) in shown


def test_a_wrong_key_and_a_closed_port_say_so(sshd: Sshd, tmp_path: Path) -> None:
    pinned = PinnedKeys(tmp_path / "known_hosts")
    pinned.record([pinned.standing(sshd.address(), ask_for_key(sshd.address()))])
    new_key(tmp_path / "stranger")
    refused = NodeConnection(sshd.address(key=str(tmp_path / "stranger")), pinned)
    with pytest.raises(NodeUnreachableError, match=r"login refused.*ssh-copy-id"):
        refused.run(["true"])
    with pytest.raises(NodeUnreachableError, match=r"no private key in .*correct `ssh.key`"):
        NodeConnection(sshd.address(key=str(tmp_path / "nowhere")), pinned).run(["true"])
    with pytest.raises(NodeUnreachableError, match="no connection"):
        NodeConnection(sshd.address(port=1), pinned).run(["true"])


def test_a_connection_that_broke_is_told_and_opened_anew(tmp_path: Path) -> None:
    with running_sshd(tmp_path) as server:
        pinned = PinnedKeys(tmp_path / "known_hosts")
        pinned.record([pinned.standing(server.address(), ask_for_key(server.address()))])
        node = NodeConnection(server.address(), pinned)
        session = int(node.run(shell('"$1" -o ppid= -p $PPID', str(needs.tool("ps")))).text)
        with pytest.raises(NodeUnreachableError, match="connection broke"):
            node.run(shell('kill -9 "$1"; sleep 20', session), deadline_seconds=20)
        assert node.run(["echo", "again"]).text == "again\n"
        node.close()


def test_a_jump_host_leads_the_way(sshd: Sshd, tmp_path: Path) -> None:
    pinned = PinnedKeys(tmp_path / "known_hosts")
    pinned.record([pinned.standing(sshd.address(), ask_for_key(sshd.address()))])
    jump = NodeConnection(sshd.address("jump host"), pinned)
    node = NodeConnection(sshd.address(), pinned, jump)
    outcome = node.run(shell('echo "$SSH_CONNECTION"'))
    assert outcome.ok
    key = ask_for_key(sshd.address(), jump.open())
    assert pinned.standing(sshd.address(), key).standing == "known"
    node.close()
    jump.close()
