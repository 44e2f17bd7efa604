"""Who has the port, in one line."""

import errno
import socket
import subprocess
import sys

import pytest

from core.ground.ports import PortTakenError, bind_problem, check_free, every_interface

HOLDER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
input()
"""


def test_a_holder_whose_command_has_lines_is_named_in_one() -> None:
    command = [sys.executable, "-c", HOLDER, "/srv/clone/ps_node"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        with pytest.raises(PortTakenError) as refused:
            check_free("127.0.0.1", port, "a test")
        holder.communicate("\n")
    message = str(refused.value)
    assert message.startswith(f"port {port} for a test is taken by process {holder.pid} (")
    assert "\n" not in message
    assert "a cluster runs in /srv/clone: `fab deploy stop` there" in message


class SocketOfOneVersion(socket.socket):
    """As the kernel makes it where `net.ipv6.bindv6only` is 1."""

    def __init__(self, family: int, kind: int) -> None:
        super().__init__(family, kind)
        if family == socket.AF_INET6:
            self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def test_a_listener_of_ipv4_is_there_for_every_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        monkeypatch.setattr(socket, "socket", SocketOfOneVersion)
        problem = bind_problem(every_interface(), listener.getsockname()[1])
    assert problem is not None
    assert problem.errno == errno.EADDRINUSE
