"""The coordinator of `benchmarks.viewers`, which reports the thread that serves the live page."""

import os
import sys
import threading
from pathlib import Path

from cluster.__main__ import main
from cluster.pages import server

THREAD_FILE = "PSCLUSTER_BENCHMARK_THREAD_FILE"
"""Environment variable: the file for the thread's number."""


class Reporting(server.PageServer):
    """Writes the number of its thread to the file first."""

    def _run(self) -> None:
        Path(os.environ[THREAD_FILE]).write_text(str(threading.get_native_id()))
        super()._run()


if __name__ == "__main__":
    server.PageServer = Reporting  # type: ignore[misc]
    sys.exit(main())
