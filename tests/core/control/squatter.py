"""Another account's process at a port of ours, which records what comes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.habits import needs

ACCOUNT = 65534
SQUATTER = """\
import socket, sys
port, heard = int(sys.argv[1]), open(sys.argv[2], "wb", 0)
listener = socket.create_server(("127.0.0.1", port))
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(5)
    try:
        asked = connection.recv(4096)
        heard.write(asked)
        connection.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except OSError:
        pass
    connection.close()
"""


@contextmanager
def squatting(port: int) -> Iterator[Path]:
    """Another account's process at `port`, which agrees to all: a file of what it hears."""
    needs.root("to listen as another account")
    heard = Path(f"/tmp/pscluster-squatter-{port}")  # the folder of a test is closed to it
    heard.touch()
    heard.chmod(0o666)
    words = ("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups")
    process = subprocess.Popen(
        [*words, "/usr/bin/python3", "-S", "-c", SQUATTER, str(port), str(heard)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        yield heard
    finally:
        process.kill()
        process.communicate()
        heard.unlink()
