"""Servers that greet and then say nothing more, who waits for them, and watchdogs over those."""

import signal
import socket
import subprocess
from collections.abc import Callable

from core.server.sockets import EMPTY_SETTINGS_FRAME

WAIT_SECONDS = 30.0
Process = subprocess.Popen[str]
Start = Callable[..., Process]

SERVER = f"""
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
kept = []
while True:
    connection, _ = listener.accept()
    connection.sendall({EMPTY_SETTINGS_FRAME!r})
    kept.append(connection)
"""

WAITER = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.recv(9, socket.MSG_WAITALL)
print("waiting", flush=True)
print(len(connection.recv(1)), flush=True)
"""


def line_of(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def news_of(guard: Process) -> str:
    """The next line of a watchdog that is not that it lives."""
    while (line := line_of(guard)) == "alive":
        pass
    return line


def errors_of(guard: Process) -> str:
    """What a watchdog that killed somebody said."""
    assert guard.wait(WAIT_SECONDS) == 1
    assert guard.stderr is not None
    return guard.stderr.read()


class Server:
    """A process that greets as a gRPC server does and then says nothing more; its address."""

    def __init__(self, start: Start) -> None:
        self.process = start("-c", SERVER)
        self.at = ("127.0.0.1", int(line_of(self.process)))
        self.words = f"{self.at[0]} {self.at[1]}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def connected(self) -> socket.socket:
        return socket.create_connection(self.at, WAIT_SECONDS)

    def waiter(self, start: Start) -> Process:
        """A process that waits for this server without end."""
        process = start("-c", WAITER, str(self.at[1]))
        assert line_of(process) == "waiting"
        return process
