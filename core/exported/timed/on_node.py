"""The program that `fab job inference` runs on each worker's node.

It times the exports beside it and writes `inference.json`.

Its folder travels with these packages in it, because a program of `fab job run` finds none of ours.
"""

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.exported.timed.turns import contestants, measured, summarize

RESULT = "inference.json"
EXPORTS = "exports"
RUN = "run"
"""Folders beside the program."""
WAIT_SECONDS = 0.5
_PI = Path("/proc/device-tree/model")


def main(folder: Path, rounds: int, windows: int, threads: int) -> None:
    """Time the exports of `folder` on this machine, and write RESULT into the working folder."""
    # ONNX Runtime first: the others are compared with it, as in the documents.
    exports = sorted(
        (folder / EXPORTS).iterdir(), key=lambda each: (not each.name.startswith("onnx"), each.name)
    )
    run = folder / RUN
    with _alone():
        rows = measured(
            contestants(exports, run if run.is_dir() else None, threads), rounds, windows
        )
    found = {"machine": machine(), "threads": threads, "rows": rows, "summary": summarize(rows)}
    Path(RESULT).write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.write("\n".join(lines(found)) + "\n")


def machine() -> dict[str, Any]:
    """What this machine is: its model, cores and memory in megabytes."""
    try:
        model = _PI.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        model = _processor()
    return {
        "model": model,
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000,
        "python": platform.python_version(),
    }


def lines(found: Mapping[str, Any]) -> Sequence[str]:
    """A line for each runtime, for the log of the program."""
    return [
        f"{row['name']}: {row['median_ms']:.2f} ms a window, p99 {row['p99_ms']:.2f} ms,"
        f" {row['process_mb']:.0f} MB"
        for row in found["rows"]
    ]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


@contextmanager
def _alone() -> Iterator[None]:
    """Two workers of one machine take turns.

    A name of the kernel's own: it goes with the process that holds it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        while True:
            try:
                held.bind(f"\0pscluster-inference-{os.getuid()}")
                break
            except OSError:
                time.sleep(WAIT_SECONDS)
        yield


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
