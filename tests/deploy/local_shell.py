"""A node that is this machine: what `NodeConnection` does over SSH, without it."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO

from deploy.cluster.connection import KEPT_BYTES
from deploy.cluster.outcome import NodeUnreachableError, Outcome
from deploy.common.command_line import Words, quoted

HANG_SECONDS = 100.0


class LocalShell:
    """Runs every command as whoever runs the tests. `breaks` is how many streams break after one line."""

    name = "rpi11"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {**os.environ, **environment}
        self.breaks = 0

    def run(
        self,
        words: Words,
        *,
        deadline_seconds: float = 30.0,
        stdin: bytes | None = None,
        root: bool = False,
        user: str | None = None,
        kept_bytes: int = KEPT_BYTES,
        into: BinaryIO | None = None,
    ) -> Outcome:
        begun = time.monotonic()
        done = subprocess.run(
            words,
            input=stdin or b"",
            capture_output=True,
            env=self.environment,
            timeout=deadline_seconds,
            check=False,
        )
        seconds = time.monotonic() - begun
        if into is not None:
            into.write(done.stdout)
        return Outcome(quoted(*words), done.returncode, done.stdout, done.stderr.decode(), seconds)

    def stream(
        self,
        words: Words,
        on_line: Callable[[str], None],
        *,
        root: bool = False,
        user: str | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=self.environment, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    on_line(line.rstrip("\n"))
                    if self.breaks:
                        self.breaks -= 1
                        raise NodeUnreachableError(f"{self.name}: the connection broke")
            finally:
                process.kill()
        return process.returncode
