"""Graphs that reach for what is not a role's: `python -m ... TARGET FOLDER OWN` tries each.

TensorFlow has many ops more; what holds them is the kernel, which sees the same system calls.

TARGET is a server's address, or "" for this process; FOLDER becomes another's, OWN is a file of the
role's own. The answer is a JSON object: whether each graph did what it was for.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

from tests.tables import table

PATHS = table("core/server/attacks")
SECRET = b"the secret words of another"
TIMEOUT = tf.compat.v1.RunOptions(timeout_in_ms=5000)
raw = tf.raw_ops


class Attacks:
    """`there` is a folder of another, `victim` a process of the same account that works in it."""

    def __init__(self, target: str, there: Path, victim: int, listener: socket.socket) -> None:
        self._target = target
        self.there = there
        self.victim = victim
        self.listener = listener
        self.port = listener.getsockname()[1]

    def run(self, make: Callable[[], Any], **config: Any) -> Any:
        graph = tf.Graph()
        with graph.as_default():
            wanted = make()
            begin = tf.compat.v1.global_variables_initializer()
        settings = tf.compat.v1.ConfigProto(**config)
        with tf.compat.v1.Session(self._target, graph=graph, config=settings) as session:
            session.run(begin)
            return session.run(wanted, options=TIMEOUT)

    def path(self, template: str) -> str:
        return template.format(there=self.there, victim=self.victim, own=os.getpid())

    def reads(self) -> dict[str, Callable[[], Any]]:
        """Graphs that answer the secret."""
        return {
            **{
                f"ReadFile {name}": partial(raw.ReadFile, filename=self.path(template))
                for name, template in PATHS["ReadFile"].items()
            },
            "ImmutableConst": lambda: raw.ImmutableConst(
                dtype=tf.uint8, shape=[len(SECRET)], memory_region_name=str(self.there / "secret")
            ),
        }

    def lists(self) -> dict[str, Callable[[], Any]]:
        """Graphs that answer names."""
        return {
            f"MatchingFiles {name}": partial(raw.MatchingFiles, pattern=self.path(template))
            for name, template in PATHS["MatchingFiles"].items()
        }

    def writes(self) -> dict[str, tuple[Path, str]]:
        """By name: a file, and what a graph calls it that writes it."""
        return {
            f"WriteFile {name}": (Path(self.path(file)), self.path(called_so))
            for name, (file, called_so) in PATHS["WriteFile"].items()
        }

    def moves(self) -> bool:
        """Whether a graph moves another's checkpoint and deletes its folder."""
        old = self.there / "old"
        self.run(
            lambda: raw.MergeV2Checkpoints(
                checkpoint_prefixes=[str(old / "part")],
                destination_prefix=str(self.there / "moved"),
                delete_old_dirs=True,
            )
        )
        return (self.there / "moved.index").exists() or not old.exists()

    def connects(self) -> None:
        """A graph after which the role has called another's port."""
        own = self._target.removeprefix("grpc://")
        cluster = tf.train.ClusterSpec({"y": {0: own}, "x": {0: f"127.0.0.1:{self.port}"}})

        def there() -> Any:
            with tf.device("/job:x/task:0"):
                return tf.constant(1)

        self.run(there, cluster_def=cluster.as_cluster_def())


def tried(work: Callable[[], Any]) -> Any:
    """What it answers; None for an error, which goes to stderr."""
    try:
        return work()
    except Exception as problem:  # whatever TensorFlow raises
        print(type(problem).__name__, " ".join(str(problem).split())[:300], file=sys.stderr)
        return None


def holds_secret(found: Any) -> bool:
    """Whether the secret is somewhere in an answer."""
    numbers = getattr(found, "tobytes", bytes)()
    return SECRET in numbers or SECRET in str(found).encode()


def prepare(there: Path) -> None:
    """Make another's files: secrets, state, checkpoints."""
    (there / "old").mkdir(parents=True)
    (there / "secret").write_bytes(SECRET)
    (there / "link").symlink_to("secret")
    (there / "state").write_text("of another")
    raw.SaveV2(
        prefix=str(there / "old/part"),
        tensor_names=["a"],
        shape_and_slices=[""],
        tensors=[tf.constant(b"b")],
    )


def main(target: str, there: Path, own: str) -> None:
    """Try all and print what each did."""
    prepare(there)
    victim = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        cwd=there,
        env={"WORDS": SECRET.decode()},
    )
    with victim, socket.create_server(("127.0.0.1", 0)) as listener:
        print(json.dumps(every(Attacks(target, there, victim.pid, listener), target, own)))


def every(attacks: Attacks, target: str, own: str) -> dict[str, bool]:
    """By name: whether it did what it was for."""
    got = {"its own": SECRET in attacks.run(lambda: raw.ReadFile(filename=own))}
    for name, make in attacks.reads().items():
        got[name] = holds_secret(tried(partial(attacks.run, make)))
    for name, make in attacks.lists().items():
        got[name] = "secret" in str(tried(partial(attacks.run, make)))
    for name, (file, called_so) in attacks.writes().items():
        before = file.read_bytes() if file.is_file() else None
        tried(partial(attacks.run, partial(raw.WriteFile, filename=called_so, contents="700")))
        got[name] = file.is_dir() or (file.exists() and file.read_bytes() != before)
        if not file.is_relative_to(attacks.there):
            with suppress(OSError):
                file.unlink()
    got["MergeV2Checkpoints"] = bool(tried(attacks.moves))
    attacks.listener.setblocking(False)
    if target:  # this process is no server
        # It tries for good: what it does begins at once.
        trial = threading.Thread(target=tried, args=(attacks.connects,), daemon=True)
        trial.start()
        trial.join(TIMEOUT.timeout_in_ms / 1000)
        got["a session of another task"] = called(attacks.listener)
    return got


def called(listener: socket.socket) -> bool:
    """Whether a connection waits; it is closed."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    sys.stdout.flush()
    os._exit(0)
