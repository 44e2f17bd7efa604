"""Many connections to one port from a process of its own.

Silent ones, or ones that send a byte at a time.

What the other side closes is opened again, as an attacker would.
"""

import contextlib
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator

from tests.core.server.processes import PROJECT

STEP_SECONDS = 0.05
AGAIN_AT_ONCE = 50


@contextlib.contextmanager
def crowd(port: int, count: int, trickle: bool = False) -> Iterator[None]:
    """While inside, `count` connections to `127.0.0.1:port` are there or being opened."""
    words = [
        sys.executable,
        "-m",
        "tests.core.control.crowd",
        str(port),
        str(count),
        str(int(trickle)),
    ]
    process = subprocess.Popen(
        words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "all asked\n"
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _main(port: int, count: int, trickle: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    open_ones: list[socket.socket] = []
    told = False
    while not select.select([sys.stdin], [], [], STEP_SECONDS)[0]:
        for one in open_ones[:]:
            if _gone(one, trickle):
                open_ones.remove(one)
                one.close()
        for _ in range(
            count - len(open_ones) if not told else min(AGAIN_AT_ONCE, count - len(open_ones))
        ):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            open_ones.append(one)
        if not told:
            print("all asked", flush=True)
            told = True


def _gone(one: socket.socket, trickle: bool) -> bool:
    try:
        if trickle:
            one.send(b"G")
        return not one.recv(4096)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")
