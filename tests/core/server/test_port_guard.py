"""A guarded port is reached from this machine and from no other.

Unguarded, the same neighbour reaches it.
"""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from core.ground.accounts import ROLES_ACCOUNT
from core.server import port_guard as guard
from core.server.port_guard import attach_filter, bind_to_loopback, guard_loopback
from core.server.sockets import answers
from tests.core.server.namespaces import Neighbour, neighbour, why_not
from tests.core.server.processes import HANG_SECONDS, running
from tests.habits import needs

LONG_ENOUGH_SECONDS = 1.0
"""A neighbour is answered within milliseconds here, where it is answered at all."""


@pytest.fixture(scope="module")
def other() -> Iterator[Neighbour]:
    needs.possible(why_not())
    with neighbour() as made:
        yield made


WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""Not another user: the Python that runs the tests may be readable by this one alone."""


def test_a_guarded_role_answers_this_machine_only(other: Neighbour) -> None:
    with running("ps_node", "--guard", "loopback", prefix=WITHOUT_PRIVILEGES) as role:
        status = Path(f"/proc/{role.process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000\n" in status
        for version, host in ((4, "127.0.0.1"), (6, "::1")):
            assert answers(host, role.port, HANG_SECONDS), host
            assert not other.answers(other.here[version], role.port, LONG_ENOUGH_SECONDS)
        role.process.terminate()
        assert f"port {role.port} answers this machine only" in role.output()


def test_a_guarded_role_on_an_address_of_the_network_keeps_it_to_this_machine(
    other: Neighbour,
) -> None:
    """It has the privilege for a filter until it becomes another account."""
    account = ("--account", str(ROLES_ACCOUNT))
    with running("worker_node", "--guard", "loopback", *account, host=other.here[4]) as role:
        for version in (4, 6):
            assert answers(other.here[version], role.port, HANG_SECONDS)
            assert not other.answers(other.here[version], role.port, LONG_ENOUGH_SECONDS)
        with socket.create_connection((other.here[4], role.metrics_port), HANG_SECONDS):
            pass
        assert not reaches(other, 4, role.metrics_port)


def test_a_guard_that_the_kernel_refuses_is_one_loud_line(other: Neighbour) -> None:
    """Without privileges a new kernel grants no filter."""
    with running(
        "ps_node", "--guard", "loopback", host=other.here[4], prefix=WITHOUT_PRIVILEGES
    ) as role:
        assert answers(other.here[4], role.port, HANG_SECONDS)
        reached = other.answers(other.here[4], role.port, LONG_ENOUGH_SECONDS)
        role.process.terminate()
        lines = role.output().splitlines()
    loud = [line for line in lines if f"PORT {role.port} IS OPEN TO THE WHOLE NETWORK" in line]
    assert len(loud) == reached


@pytest.mark.parametrize("means", [attach_filter, bind_to_loopback])
@pytest.mark.parametrize(
    ("version", "family", "host", "own"),
    [(4, socket.AF_INET, "0.0.0.0", "127.0.0.1"), (6, socket.AF_INET6, "::", "::1")],
)
def test_each_means_suffices(
    other: Neighbour,
    means: Callable[[socket.socket], None],
    version: int,
    family: socket.AddressFamily,
    host: str,
    own: str,
) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert reaches(other, version, port)
        means(listener)
        assert not reaches(other, version, port)
        with socket.create_connection((own, port), HANG_SECONDS):
            pass


CONNECT = """
import socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
except OSError: print("no")
else: print("yes")
"""


def reaches(other: Neighbour, version: int, port: int) -> bool:
    """Whether the neighbour's handshake completes."""
    output, _ = other.python(CONNECT, other.here[version], str(port)).communicate()
    return {"yes\n": True, "no\n": False}[output]


CONNECT_AND_WAIT_FOR_THE_END = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
print("connected", flush=True)
try: print("end" if connection.recv(1) == b"" else "data", flush=True)
except ConnectionError: print("end", flush=True)
"""


@pytest.mark.parametrize("accepted_first", [True, False])
def test_a_connection_made_before_the_guard_is_shut(other: Neighbour, accepted_first: bool) -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        early = other.python(CONNECT_AND_WAIT_FOR_THE_END, other.here[4], str(port))
        assert early.stdout is not None
        assert early.stdout.readline() == "connected\n"
        mine = socket.create_connection(("127.0.0.1", port), HANG_SECONDS)
        with ThreadPoolExecutor(1) as pool:
            accepting = pool.submit(lambda: [listener.accept()[0] for _ in range(2)])
            if accepted_first:
                accepting.result(HANG_SECONDS)
            outcome = guard_loopback(port)
        accepted = accepting.result()
        with closing(mine), closing(accepted[0]), closing(accepted[1]):
            assert outcome.guarded
            assert outcome.shut >= 1
            assert early.communicate(timeout=HANG_SECONDS)[0] == "end\n"
            mine.sendall(b"x")
            assert accepted[1].recv(1) == b"x"


A_HANDSHAKE_WITHOUT_ITS_LAST_PACKET = """
import socket, struct, sys
here, nobody = socket.inet_aton(sys.argv[1]), socket.inet_aton("198.18.77.9")
port = int(sys.argv[2])
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~(total + total // 0xFFFF) & 0xFFFF if total % 0xFFFF else 0
def syn(check): return struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 8192, check, 0)
segment = syn(checksum(nobody + here + struct.pack("!HH", 6, 20) + syn(0)))
packet = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, nobody, here) + segment
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
    raw.sendto(packet, (sys.argv[1], 0))
print("sent", flush=True)
"""


@pytest.mark.parametrize("means", [attach_filter, bind_to_loopback])
def test_a_handshake_under_way_is_no_way_in(
    other: Neighbour, means: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last packet meets the filter.

    A binding lets it pass: then the port is not called guarded.
    """
    monkeypatch.setattr(guard, "MEANS", tuple(one for one in guard.MEANS if one[1] is means))
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.05)
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        sender = other.python(A_HANDSHAKE_WITHOUT_ITS_LAST_PACKET, other.here[4], str(port))
        assert sender.communicate(timeout=HANG_SECONDS)[0] == "sent\n"
        assert half_open(port)
        outcome = guard.guard_loopback(port)
    assert outcome.guarded == (means is attach_filter)
    assert ("connections from 198.18.77.9 came before the guard" in outcome.line) == (
        means is bind_to_loopback
    )


def half_open(port: int) -> bool:
    """Whether the kernel knows of a handshake under way at the port."""
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return any(
        line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "03" for line in lines
    )


def test_a_port_that_nobody_opened_is_one_loud_line() -> None:
    with socket.socket() as bound_only:
        bound_only.bind(("127.0.0.1", 0))
        outcome = guard_loopback(bound_only.getsockname()[1])
    assert not outcome.guarded
    assert "IS OPEN TO THE WHOLE NETWORK" in outcome.line
    assert "no socket of this process listens on it" in outcome.line


def test_the_guard_keeps_no_descriptor_and_closes_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = sorted(os.listdir("/proc/self/fd"))
        assert guard_loopback(listener.getsockname()[1]).guarded
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert Path(f"/proc/self/fd/{listener.fileno()}").exists()
        with socket.create_connection(listener.getsockname(), HANG_SECONDS):
            listener.accept()[0].close()
