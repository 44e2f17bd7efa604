"""The connectors of a cluster's nodes, used side by side, and the connector of this machine.

That does with child processes what `NodeConnection` does over SSH.
"""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from core.ground.children import dies_with_parent
from core.ground.errors import ClusterError
from core.ground.files import atomic_stream
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import (
    READ_BYTES,
    BoundedOutput,
    CommandInput,
    Connector,
    FileToWrite,
    Following,
    NodeUnreachableError,
)
from deploy.common.project import environment_for_any_folder

if TYPE_CHECKING:
    from core.inventory import Inventory


_POLL_SECONDS = 0.25


class Local(Connector):
    """A node that is this machine.

    Every command runs as the account that typed `fab`, `root` and `user` included: a local cluster
    owns nothing that is another account's. A command dies with this process.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._environment = environment_for_any_folder()
        self._children: set[subprocess.Popen[bytes]] = set()

    def _put(self, file: FileToWrite, **how: Any) -> None:
        blocks = CommandInput(file.blocks)
        with atomic_stream(Path(file.path)) as stream:
            stream.writelines(blocks)
            blocks.check(self.name)
        Path(file.path).chmod(file.mode)

    def close(self) -> None:
        """End the commands under way; this machine has no connection to close."""
        for process in tuple(self._children):
            _end(process)

    def _run(
        self,
        prefix: list[str],
        command_line: list[str],
        stdin: CommandInput,
        deadline_seconds: float,
        output: BoundedOutput,
        errors: BoundedOutput,
    ) -> int | None:
        overdue = threading.Event()
        with self._started(command_line, subprocess.PIPE, subprocess.PIPE) as process:

            def end_it() -> None:
                overdue.set()
                _end(process)

            timer = threading.Timer(deadline_seconds, end_it)
            threads = [
                threading.Thread(target=_send, args=(process, stdin), daemon=True),
                threading.Thread(target=_receive, args=(process.stderr, errors), daemon=True),
                timer,
            ]
            for thread in threads:
                thread.start()
            try:
                _receive(process.stdout, output)
                process.wait()
            finally:
                _end(process)
                timer.cancel()
                for thread in threads:
                    thread.join()
        if overdue.is_set():
            return None
        self.open()  # a `hang_up` ended it
        return process.returncode

    @contextmanager
    def _following(self, prefix: list[str], command_line: list[str]) -> Iterator[Following]:
        with self._started(command_line, subprocess.DEVNULL, subprocess.STDOUT) as process:
            output: Any = process.stdout

            def next_bytes() -> bytes | None:
                ready = select.select([output], [], [], _POLL_SECONDS)[0]
                if ready:
                    return os.read(output.fileno(), READ_BYTES)
                return None

            def end() -> int:
                code = process.wait()
                self.open()
                return code

            try:
                yield next_bytes, end
            finally:
                _end(process)

    @contextmanager
    def _started(
        self, command_line: list[str], stdin: int, stderr: int
    ) -> "Iterator[subprocess.Popen[bytes]]":
        self.open()
        try:
            process = subprocess.Popen(
                command_line,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )
        except OSError as error:
            raise NodeUnreachableError(
                f"{self.name}: {command_line[0]} cannot be started: {error.strerror}"
            ) from error
        self._children.add(process)
        try:
            with process:
                yield process
        finally:
            self._children.discard(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command that still runs, with everything that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _send(process: Any, blocks: CommandInput) -> None:
    with suppress(OSError), process.stdin as pipe:  # the command may end before it read everything
        pipe.writelines(blocks)
        if blocks.problem is not None:
            _end(process)  # it would take a part for the whole


def _receive(pipe: Any, output: BoundedOutput) -> None:
    while received := os.read(pipe.fileno(), READ_BYTES):
        output.add(received)


T = TypeVar("T")


class Fleet:
    """One connector a node. Closing it disconnects all of them."""

    def __init__(
        self,
        nodes: Sequence[Connector],
        parallel: int,
        jump: NodeConnection | None = None,
        token: str | None = None,
    ) -> None:
        """`token` is the cluster's, where this machine keeps it."""
        self.nodes: Mapping[str, Connector] = {node.name: node for node in nodes}
        self._parallel = parallel
        self.jump = jump
        self.token = token

    @classmethod
    def here(cls, inventory: "Inventory", token: str | None = None) -> "Fleet":
        """Present every node as this machine, one after the other."""
        return cls([Local(node.name) for node in inventory.nodes], parallel=1, token=token)

    def each(
        self, work: Callable[[Connector], T], names: Sequence[str] | None = None
    ) -> dict[str, T | ClusterError]:
        """Call `work` with each node (of `names`).

        The result of a call that raises ClusterError is the error.
        """
        chosen = [self.nodes[name] for name in (self.nodes if names is None else names)]
        if not chosen:
            return {}

        def guarded(node: Connector) -> T | ClusterError:
            try:
                return work(node)
            except ClusterError as error:
                return error

        if self._parallel == 1:  # in this thread, which Ctrl-C interrupts at once
            return {node.name: guarded(node) for node in chosen}
        if self.jump is not None:
            try:
                # once and first: threads that open it together get in each other's way
                self.jump.open()
            except ClusterError as error:
                return {node.name: error for node in chosen}
        with ThreadPoolExecutor(
            max_workers=min(self._parallel, len(chosen)), thread_name_prefix="node"
        ) as pool:
            try:
                results = list(pool.map(guarded, chosen))
            except BaseException:
                # Ctrl-C: leaving the pool waits for its threads, and a command may be given an
                # hour.
                for node in chosen:
                    node.hang_up()
                raise
        return {node.name: result for node, result in zip(chosen, results, strict=True)}

    def close(self) -> None:
        """Disconnect all of them."""
        for node in self.nodes.values():
            node.close()
        if self.jump is not None:
            self.jump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split_errors(
    results: Mapping[str, T | ClusterError],
) -> tuple[dict[str, T], dict[str, ClusterError]]:
    """Return what `Fleet.each` got of nodes, and the errors of the others."""
    answers: dict[str, T] = {}
    errors: dict[str, ClusterError] = {}
    for name, result in results.items():
        if isinstance(result, ClusterError):
            errors[name] = result
        else:
            answers[name] = result
    return answers, errors
