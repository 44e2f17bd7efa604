"""The gate before a port.

Own connections come through it, those of other accounts never reach who listens.
"""

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from core.server.gate import PeerAccounts
from core.server.sockets import is_elsewhere
from tests.core.server.namespaces import neighbour, why_not
from tests.core.server.other_account import STRANGER
from tests.core.server.processes import HANG_SECONDS, PROJECT, python, running
from tests.habits import needs

GREET = """
import encodings.idna, os, socket, sys  # the first: else loaded when nothing may be read any more
from core.server.sockets import answers
uid = int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
print(*(answers(host, int(sys.argv[2]), 2.0) for host in ("127.0.0.1", "::1")))
"""


def peer_account(connection: socket.socket) -> int | None:
    with closing(PeerAccounts()) as accounts:
        return accounts.account_of(connection)


SERVE_BEHIND_A_GATE = """
import socket, subprocess, sys
from core.server.gate import Gate
from core.server.sockets import is_elsewhere
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
own_filter = "import socket; s = socket.create_server(('127.0.0.1', 0));"
own_filter += "c = socket.create_connection(s.getsockname());"
print(subprocess.run([sys.executable, "-c", own_filter + "s.accept()"]).returncode, flush=True)
for _ in sys.stdin:
    print(accepted().decode(), gate.handed_on, flush=True)
"""


def greeted_as(uid: int, port: int) -> str:
    return python("-c", GREET, str(uid), str(port)).stdout


def test_a_role_answers_its_own_account_and_root_alone() -> None:
    needs.root("becoming another account")
    unprivileged = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    with running("ps_node", "--guard", "loopback", prefix=unprivileged) as role:
        assert greeted_as(os.geteuid(), role.port) == "True True\n"
        assert greeted_as(STRANGER, role.port) == "False False\n"
        assert greeted_as(os.geteuid(), role.port) == "True True\n"
        role.process.terminate()
        lines = role.output()
    assert (
        f"port {role.port}: a connection of account nobody (uid {STRANGER}) was closed unread"
        in lines
    )
    assert "and of its accounts root (uid 0)" in lines
    assert "ANY ACCOUNT" not in lines


def test_who_has_hung_up_already_has_no_account_and_other_ports_accept_as_ever() -> None:
    """The kernel tells uid 0 for a socket that nobody holds any more.

    Bytes sent by such a one must not be read.
    """
    with subprocess.Popen(
        [sys.executable, "-c", SERVE_BEHIND_A_GATE],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        at = ("127.0.0.1", int(process.stdout.readline()))
        assert process.stdout.readline() == "True\n", "another port of this process"
        assert process.stdout.readline() == "0\n", "a port of a child"
        with socket.create_connection(at, HANG_SECONDS) as gone:
            gone.sendall(b"x")
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "- 0\n"
        with socket.create_connection(at, HANG_SECONDS) as staying:
            staying.sendall(b"y")
            assert process.communicate("\n", HANG_SECONDS)[0] == "y 1\n"


def test_a_probe_that_hung_up_is_not_taken_for_another_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for last in (1, 2):
            with socket.create_connection(
                listener.getsockname(), source_address=(f"127.0.0.{last}", 0)
            ):
                accepted, _ = listener.accept()
            with accepted:
                assert not is_elsewhere(accepted)
    with socket.socket() as unconnected:
        assert not is_elsewhere(unconnected)


@pytest.mark.parametrize(
    ("host", "family", "dual_stack"),
    [
        ("127.0.0.1", socket.AF_INET, False),
        ("127.0.0.1", socket.AF_INET6, True),
        ("::1", socket.AF_INET6, False),
        ("::1", socket.AF_INET6, True),
    ],
)
def test_the_account_of_a_connection_is_found(
    host: str, family: socket.AddressFamily, dual_stack: bool
) -> None:
    with (
        socket.create_server(("", 0), family=family, dualstack_ipv6=dual_stack) as listener,
        socket.create_connection((host, listener.getsockname()[1]), HANG_SECONDS) as client,
    ):
        accepted, _ = listener.accept()
        with closing(accepted):
            assert peer_account(accepted) == os.geteuid()
            client.shutdown(socket.SHUT_WR)
            assert peer_account(accepted) is None


def test_one_socket_to_the_kernel_answers_for_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one for each, own callers waited 500 times as long under a flood."""
    with (
        closing(PeerAccounts()) as accounts,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), HANG_SECONDS),
        listener.accept()[0] as accepted,
        monkeypatch.context() as forbidden,
    ):
        forbidden.setattr(socket, "socket", None)
        assert [accounts.account_of(accepted) for _ in range(3)] == [os.geteuid()] * 3


def test_a_neighbour_s_connection_has_no_account() -> None:
    needs.possible(why_not())
    connect = (
        "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
        " sys.stdin.read()"
    )
    with neighbour() as other, socket.create_server(("", 0)) as listener:
        there = other.python(connect, other.here[4], str(listener.getsockname()[1]))
        accepted, _ = listener.accept()
        with closing(accepted):
            assert peer_account(accepted) is None
        there.communicate(timeout=HANG_SECONDS)


TWICE = """
import logging, socket
from core.server.gate import Gate
from core.server.port_guard import PortGuard
logging.basicConfig(format="%(levelname)s %(message)s")
Gate(1)
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
guard = PortGuard(listener.getsockname()[1], "127.0.0.1")
listener.listen()
guard.put_up()
guard.report(logging.getLogger())
"""


def test_a_kernel_without_a_gate_is_one_loud_line() -> None:
    """A program that listens to our system calls already."""
    done = python("-c", TWICE)
    (line,) = done.stderr.splitlines()
    assert line.startswith("ERROR port ")
    assert "BUT ANY ACCOUNT OF THIS MACHINE CAN RUN CODE AS" in line
    assert "no gate before the port: Device or resource busy" in line


def test_a_user_namespace_where_all_accounts_look_the_same_is_refused() -> None:
    needs.mount_namespace()
    code = "from core.server.gate import own_accounts; own_accounts()"
    refused = subprocess.run(
        ["unshare", "--user", sys.executable, "-c", code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "in this user namespace all accounts look the same" in refused.stderr
