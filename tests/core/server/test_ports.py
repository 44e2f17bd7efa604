"""Who has the port, in one line."""

import subprocess
import sys

import pytest

from core.ground.ports import PortTakenError, check_free

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
