"""The gate before a port: own connections come through it, those of other accounts never reach who listens."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cluster.server.gate import peer_account
from tests.habits import needs
from tests.server.namespaces import neighbour, why_not
from tests.server.other_account import STRANGER
from tests.server.processes import HANG_SECONDS, PROJECT, running


@pytest.fixture
def as_root() -> None:
    needs.root("becoming another account")


GREET = """
import encodings.idna, os, socket, sys  # the first: loaded late otherwise, when nothing may be read any more
from cluster.server.probe import answers
uid = int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
print(*(answers(host, int(sys.argv[2]), 2.0) for host in ("127.0.0.1", "::1")))
"""

SERVE_BEHIND_A_GATE = """
import socket, subprocess, sys
from cluster.server.gate import Gate
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); port = listener.getsockname()[1]
gate = Gate(port)
listener.listen(); listener.setblocking(False)
def accepted():
    try: return listener.accept()[0].recv(1)
    except BlockingIOError: return b"-"
print(port, flush=True)
other = socket.create_server(("127.0.0.1", 0))
mine = socket.create_connection(other.getsockname())
print(other.accept()[0].getpeername() == mine.getsockname(), flush=True)
own_filter = "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
print(subprocess.run([sys.executable, "-c", own_filter + "s.accept()"]).returncode, flush=True)
for _ in sys.stdin:
    print(accepted().decode(), gate.handed_on, flush=True)
"""


def greeted_as(uid: int, port: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", GREET, str(uid), str(port)],
        cwd=PROJECT, capture_output=True, text=True, check=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    return done.stdout


@pytest.mark.usefixtures("as_root")
def test_a_role_answers_its_own_account_and_root_alone() -> None:
    unprivileged = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    with running("ps_node", "--guard", "loopback", prefix=unprivileged) as role:
        assert greeted_as(os.geteuid(), role.port) == "True True\n"
        assert greeted_as(STRANGER, role.port) == "False False\n"
        assert greeted_as(os.geteuid(), role.port) == "True True\n"
        role.process.terminate()
        lines = role.output()
    assert f"port {role.port}: a connection of account nobody (uid {STRANGER}) was closed unread" in lines
    assert "and of its accounts root (uid 0)" in lines
    assert "ANY ACCOUNT" not in lines


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_BEHIND_A_GATE],
        cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield process, port
    finally:
        process.communicate(timeout=HANG_SECONDS)


def taken(process: subprocess.Popen[str]) -> str:
    """What the process behind the gate accepts now, and how many connections came through so far."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_other_ports_and_children_accept_as_ever(served: tuple[subprocess.Popen[str], int]) -> None:
    process, _ = served
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    assert process.stdout.readline() == "0\n"


def test_who_has_hung_up_already_has_no_account(served: tuple[subprocess.Popen[str], int]) -> None:
    """The kernel tells uid 0 for a socket that nobody holds any more: bytes sent by such a one must not be read."""
    process, port = served
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["True\n", "0\n"]
    with socket.create_connection(("127.0.0.1", port), HANG_SECONDS) as gone:
        gone.sendall(b"x")
    assert taken(process) == "- 0\n"
    with socket.create_connection(("127.0.0.1", port), HANG_SECONDS) as staying:
        staying.sendall(b"y")
        assert taken(process) == "y 1\n"


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
@pytest.mark.parametrize("dual_stack", [True, False])
def test_the_account_of_a_connection_is_found(family: socket.AddressFamily, host: str, dual_stack: bool) -> None:
    listening = socket.AF_INET6 if dual_stack else family
    with (
        socket.create_server(("", 0), family=listening, dualstack_ipv6=dual_stack) as listener,
        socket.create_connection((host, listener.getsockname()[1]), HANG_SECONDS) as client,
    ):
        accepted, _ = listener.accept()
        with closing(accepted):
            assert peer_account(accepted) == os.geteuid()
            client.shutdown(socket.SHUT_WR)
            assert peer_account(accepted) is None


def test_a_neighbour_s_connection_has_no_account() -> None:
    needs.possible(why_not())
    connect = "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"
    with neighbour() as other, socket.create_server(("", 0)) as listener:
        there = other.python(connect, other.here[4], str(listener.getsockname()[1]))
        accepted, _ = listener.accept()
        with closing(accepted):
            assert peer_account(accepted) is None
        there.communicate(timeout=HANG_SECONDS)


def test_a_kernel_without_a_gate_is_one_loud_line(tmp_path: Path) -> None:
    """A program that listens to our system calls already, as some container managers do, leaves no place for ours."""
    twice = (
        "import logging, socket; from cluster.server.gate import Gate; from cluster.server.port_guard import PortGuard;"
        "logging.basicConfig(format='%(levelname)s %(message)s');"
        "Gate(1); s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1];"
        "guard = PortGuard(port, '127.0.0.1'); s.listen(); guard.put_up(); guard.report(logging.getLogger())"
    )
    done = subprocess.run(
        [sys.executable, "-c", twice], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("ERROR port ")
    assert "BUT ANY ACCOUNT OF THIS MACHINE CAN RUN CODE AS" in line
    assert "no gate before the port: Device or resource busy" in line
