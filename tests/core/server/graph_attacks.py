"""Graphs that reach for what is not a role's: `python -m ... TARGET FOLDER OWN` tries each.

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

SECRET = b"the secret words of another"
TIMEOUT = tf.compat.v1.RunOptions(timeout_in_ms=5000)
raw = tf.raw_ops
STRING = tf.string


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

    def reads(self) -> dict[str, Callable[[], Any]]:
        """Graphs that answer the secret."""
        secret = str(self.there / "secret")
        through = f"/proc/{self.victim}"
        return {
            "ReadFile": lambda: raw.ReadFile(filename=secret),
            "ReadFile of a link": lambda: raw.ReadFile(filename=str(self.there / "link")),
            "ReadFile upwards": lambda: raw.ReadFile(filename=f"/usr/lib/../..{secret}"),
            "ReadFile by own root": lambda: raw.ReadFile(filename=f"/proc/self/root{secret}"),
            "ReadFile by another's root": lambda: raw.ReadFile(filename=f"{through}/root{secret}"),
            "ReadFile by another's folder": lambda: raw.ReadFile(filename=f"{through}/cwd/secret"),
            "ReadFile of an environ": lambda: raw.ReadFile(filename=f"{through}/environ"),
            "WholeFileReader": lambda: self._by_reader(raw.WholeFileReaderV2(), secret),
            "TextLineReader": lambda: self._by_reader(raw.TextLineReaderV2(), secret),
            "FixedLengthRecordReader": lambda: self._by_reader(
                raw.FixedLengthRecordReaderV2(record_bytes=len(SECRET)), secret
            ),
            "TextLineDataset": lambda: self._first(
                raw.TextLineDataset(filenames=[secret], compression_type="", buffer_size=100)
            ),
            "FixedLengthRecordDataset": lambda: self._first(
                raw.FixedLengthRecordDatasetV2(
                    filenames=[secret],
                    header_bytes=0,
                    record_bytes=len(SECRET),
                    footer_bytes=0,
                    buffer_size=100,
                    compression_type="",
                )
            ),
            "CSVDataset": lambda: self._first(
                raw.CSVDataset(
                    filenames=[secret],
                    compression_type="",
                    buffer_size=100,
                    header=False,
                    field_delim=",",
                    use_quote_delim=False,
                    na_value="",
                    select_cols=tf.constant([], tf.int64),
                    record_defaults=[[""]],
                    output_shapes=[[]],
                )
            ),
            "ImmutableConst": lambda: raw.ImmutableConst(
                dtype=tf.uint8, shape=[len(SECRET)], memory_region_name=secret
            ),
            "RestoreV2": lambda: raw.RestoreV2(
                prefix=str(self.there / "kept"),
                tensor_names=["words"],
                shape_and_slices=[""],
                dtypes=[STRING],
            ),
            "a table of a file": lambda: self._by_table(secret),
        }

    def _by_reader(self, reader: Any, file: str) -> Any:
        queue = raw.FIFOQueueV2(component_types=[STRING], shapes=[[]])
        filled = raw.QueueEnqueueV2(handle=queue, components=[tf.constant(file)])
        with tf.control_dependencies([filled]):
            return raw.ReaderReadV2(reader_handle=reader, queue_handle=queue).value

    def _first(self, variant: Any) -> Any:
        return raw.DatasetToSingleElement(
            dataset=variant, output_types=[STRING], output_shapes=[[]]
        )

    def _by_table(self, file: str) -> Any:
        table = raw.HashTableV2(key_dtype=tf.int64, value_dtype=STRING)
        filled = raw.InitializeTableFromTextFileV2(
            table_handle=table, filename=file, key_index=-1, value_index=-2
        )
        with tf.control_dependencies([filled]):
            return raw.LookupTableFindV2(
                table_handle=table, keys=tf.constant([0], tf.int64), default_value=""
            )

    def lists(self) -> dict[str, Callable[[], Any]]:
        """Graphs that answer names."""
        through = f"/proc/{self.victim}/root{self.there}/s*"
        return {
            "MatchingFiles": lambda: raw.MatchingFiles(pattern=str(self.there / "*")),
            "MatchingFiles by another's root": lambda: raw.MatchingFiles(pattern=through),
            "MatchingFilesDataset": lambda: self._first(
                raw.MatchingFilesDataset(patterns=[f"{self.there}/secr*"])
            ),
        }

    def writes(self) -> dict[str, tuple[Path, Callable[[str], Any]]]:
        """Graphs that make a file, and which."""
        there = self.there
        through = Path(f"/proc/{self.victim}/root")
        words = tf.constant  # made in the graph that is current then
        return {
            "WriteFile": (there / "one", lambda at: raw.WriteFile(filename=at, contents="x")),
            "WriteFile in a new folder": (
                there / "new" / "one",
                lambda at: raw.WriteFile(filename=at, contents="x"),
            ),
            "WriteFile over another's": (
                there / "state",
                lambda at: raw.WriteFile(filename=at, contents="x"),
            ),
            "WriteFile by another's root": (
                there / "two",
                lambda at: raw.WriteFile(filename=f"{through}{at}", contents="x"),
            ),
            "WriteFile by own root": (
                there / "three",
                lambda at: raw.WriteFile(filename=f"/proc/self/root{at}", contents="x"),
            ),
            "WriteFile among temporary files": (
                Path(f"/tmp/pscluster-attack-{os.getpid()}"),
                lambda at: raw.WriteFile(filename=at, contents="x"),
            ),
            "WriteFile in memory": (
                Path(f"/dev/shm/pscluster-attack-{os.getpid()}"),
                lambda at: raw.WriteFile(filename=at, contents="x"),
            ),
            "WriteFile to another's place in the queue of the killed": (
                Path(f"/proc/{self.victim}/oom_score_adj"),
                lambda at: raw.WriteFile(filename=at, contents="700"),
            ),
            "SaveV2": (
                there / "saved.index",
                lambda at: raw.SaveV2(
                    prefix=at.removesuffix(".index"),
                    tensor_names=["a"],
                    shape_and_slices=[""],
                    tensors=[words(1.0)],
                ),
            ),
            "PrintV2": (
                there / "printed",
                lambda at: raw.PrintV2(input="x", output_stream=f"file://{at}"),
            ),
            "DebugIdentity": (
                there / "debugged",
                lambda at: raw.DebugIdentityV3(
                    input=words(1.0), tensor_name="a:0", debug_urls=[f"file://{at}"]
                ),
            ),
            "a file of summaries": (there / "summaries", self._summary),
            "CacheDataset": (
                there / "cached.index",
                lambda at: self._whole(
                    raw.CacheDataset(
                        input_dataset=self._of_words(),
                        filename=at.removesuffix(".index"),
                        output_types=[STRING],
                        output_shapes=[[]],
                    )
                ),
            ),
        }

    def _summary(self, at: str) -> Any:
        writer = raw.SummaryWriter()
        made = raw.CreateSummaryFileWriter(
            writer=writer, logdir=at, max_queue=1, flush_millis=1, filename_suffix="x"
        )
        with tf.control_dependencies([made]):
            return raw.FlushSummaryWriter(writer=writer)

    def _of_words(self) -> Any:
        return raw.TensorSliceDataset(components=[tf.constant(["x"])], output_shapes=[[]])

    def _whole(self, variant: Any) -> Any:
        iterator = raw.AnonymousIterator(output_types=[STRING], output_shapes=[[]])
        made = raw.MakeIterator(dataset=variant, iterator=iterator)
        with tf.control_dependencies([made]):
            first = raw.IteratorGetNext(
                iterator=iterator, output_types=[STRING], output_shapes=[[]]
            )
        with tf.control_dependencies(first):
            return raw.IteratorGetNextAsOptional(
                iterator=iterator, output_types=[STRING], output_shapes=[[]]
            ).op

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

    def connects(self) -> dict[str, Callable[[], object]]:
        """Graphs after which the role has called another's port."""
        cluster = tf.train.ClusterSpec(
            {
                "y": {0: self._target.removeprefix("grpc://")},
                "x": {0: f"127.0.0.1:{self.port}"},
            }
        )

        def of_another_task() -> object:
            def there() -> Any:
                with tf.device("/job:x/task:0"):
                    return tf.constant(1)

            return self.run(there, cluster_def=cluster.as_cluster_def())

        def of_data_service() -> object:
            return self.run(
                lambda: self._first(
                    raw.DataServiceDatasetV2(
                        dataset_id=0,
                        processing_mode="parallel_epochs",
                        address=f"127.0.0.1:{self.port}",
                        protocol="grpc",
                        job_name="",
                        consumer_index=-1,
                        num_consumers=-1,
                        max_outstanding_requests=1,
                        iteration_counter=raw.DummyIterationCounter(),
                        output_types=[STRING],
                        output_shapes=[[]],
                    )
                )
            )

        return {"a session of another task": of_another_task, "data service": of_data_service}


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
    for prefix, name, value in (("kept", "words", SECRET), ("old/part", "a", b"b")):
        raw.SaveV2(
            prefix=str(there / prefix),
            tensor_names=[name],
            shape_and_slices=[""],
            tensors=[tf.constant(value)],
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
    for name, (file, write) in attacks.writes().items():
        before = file.read_bytes() if file.is_file() else None
        tried(partial(attacks.run, partial(write, str(file))))
        got[name] = file.is_dir() or (file.exists() and file.read_bytes() != before)
        if not file.is_relative_to(attacks.there):
            with suppress(OSError):
                file.unlink()
    got["MergeV2Checkpoints"] = bool(tried(attacks.moves))
    attacks.listener.setblocking(False)
    if target:  # this process is no server
        for name, connect in attacks.connects().items():
            # Some try for good: what they do begins at once.
            trial = threading.Thread(target=tried, args=(connect,), daemon=True)
            trial.start()
            trial.join(TIMEOUT.timeout_in_ms / 1000)
            got[name] = called(attacks.listener)
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
