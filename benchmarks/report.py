"""The one shape every benchmark prints: `{name, size, machine, rows, summary}`.

`size` is `full`, `quick` or `smoke`. Figures of `smoke` are no results: it shows that all parts of
a benchmark work.
"""

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
    package = {"x86_64": "tensorflow-cpu"}.get(platform.machine(), "tensorflow")
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
    sizes = parser.add_mutually_exclusive_group()
    for size, what in (
        ("quick", "less of the same work: two minutes at most"),
        ("smoke", "a little of each part of the work: seconds, and no figure is a result"),
    ):
        words: dict[str, Any] = {"action": "store_const", "const": size, "default": "full"}
        sizes.add_argument(f"--{size}", dest="size", help=what, **words)
    parser.add_argument(
        "--json", action="store_true", help="print the JSON object alone, on one line"
    )
    return parser


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def memory_bytes(process: int | str = "self", field: str = "RssAnon") -> int:
    """Return memory of a process, as `/proc/PROCESS/status` has it: now resident and anonymous.

    Raises OSError when the process is gone.
    """
    with open(f"/proc/{process}/status") as stream:
        for line in stream:
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    raise ProcessLookupError(f"process {process} has ended")


def tell(line: object) -> None:
    """Print how far the benchmark is, on standard error."""
    print(line, file=sys.stderr, flush=True)


def publish(
    name: str, rows: Sequence[dict[str, Any]], summary: dict[str, Any], given: argparse.Namespace
) -> None:
    """Print the benchmark's object; without --json indented, for people."""
    content = {
        "name": name,
        "size": given.size,
        "machine": machine(),
        "rows": list(rows),
        "summary": summary,
    }
    json.dump(measured(content), sys.stdout, indent=None if given.json else 2)
    print()


def measured(content: Any) -> Any:
    """Return the content without the keys that have no value."""
    if isinstance(content, list):
        return [measured(each) for each in content]
    if not isinstance(content, dict):
        return content
    values = {key: measured(value) for key, value in content.items()}
    return {key: value for key, value in values.items() if value not in (None, {})}
