"""What another account of this machine does with a TensorFlow port.

It sends a graph that writes a file.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.core.server.processes import HANG_SECONDS, PROJECT

STRANGER = 65534

LONGEST_SECONDS = 8.0
"""A graph runs within milliseconds. TensorFlow's client tries a port that hangs up on it again
without end."""

_WRITE = """
import json, os, sys, threading
uid, file, longest, ports = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
import tensorflow as tf
graph = tf.Graph()
with graph.as_default():
    here = tf.io.write_file("/dev/null", "x")
    writes = {port: tf.io.write_file(f"{file}.{port}", "a graph ran") for port in ports}
answers = dict.fromkeys(ports, "")
def run(operation, target=""):
    with tf.compat.v1.Session(target, graph=graph) as session:
        session.run(operation)
def attempt(port):
    run(writes[port], f"grpc://127.0.0.1:{port}")
    answers[port] = "ran"
run(here)  # whatever Python and TensorFlow load late is loaded while the files may be read
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
attempts = [threading.Thread(target=attempt, args=(port,), daemon=True) for port in ports]
for one in attempts: one.start()
for one in attempts: one.join(longest / len(ports))
print(json.dumps(answers), flush=True)
os._exit(0)
"""


def graphs_sent(uid: int, ports: Sequence[int], folder: Path) -> tuple[dict[int, bool], list[Path]]:
    """Whether a graph that writes a file runs through each of these ports, and the files written.

    The folder is one that everybody may write to, so that only the ports stand between the account
    and the file.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    words = [
        sys.executable,
        "-c",
        _WRITE,
        str(uid),
        str(folder / "written"),
        str(LONGEST_SECONDS),
        *map(str, ports),
    ]
    done = subprocess.run(
        words, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    answers = {int(port): answer == "ran" for port, answer in json.loads(done.stdout).items()}
    return answers, sorted(folder.iterdir())
