"""The one shape every benchmark prints: `{name, machine, rows, summary}`."""

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = ""
    try:
        with open("/proc/cpuinfo") as stream:
            model = next(
                line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")
            )
    except (OSError, StopIteration):
        model = platform.processor()
    if platform.machine() == "x86_64":
        package = "tensorflow-cpu"
    else:
        package = "tensorflow"
    try:
        tensorflow = version(package)
    except PackageNotFoundError:  # the exports run without it
        tensorflow = None
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "tensorflow": tensorflow,
        "load_average": os.getloadavg()[0],
    }


def arguments(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the flags every benchmark takes.

    From now on SIGTERM and SIGHUP end the process as an exception does, so that what it started
    ends with it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument(
        "--quick", action="store_true", help="less of the same work: two minutes at most"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the JSON object alone, on one line"
    )
    return parser


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def publish(
    name: str, rows: Sequence[dict[str, Any]], summary: dict[str, Any], *, as_json: bool
) -> None:
    """Print the benchmark's object; without --json indented, for people."""
    found = {"name": name, "machine": machine(), "rows": list(rows), "summary": summary}
    json.dump(found, sys.stdout, indent=None if as_json else 2)
    print()
