"""Preparing data that are eight times as large as memory: seconds, and the memory that it takes.

Files of zeros are prepared in a process of their own, in a control group that may have an eighth of
their size, page cache included: an array that a program maps, sparse on disk, and the same in a
compressed `.npz`. The prepared set is written whole. Without memory groups of cgroup v1,
RLIMIT_DATA limits what the process takes beside its imports; it does not count page cache.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import MEGABYTE, Sampler
from benchmarks.report import arguments, publish

CONTROLLER = Path("/sys/fs/cgroup/memory")
GIBIBYTE = 2**30
GIBIBYTES = 8
QUICK_GIBIBYTES = 1
TIMES = 8
"""The data over the limit."""
SHAPE = (64, 64, 16)
"""Of an example, uint8: 64 KiB."""
TESTS = 8
CLASSES = 4
END_SECONDS = 5.0

PREPARE = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from core.data import find_source, prepare
from core.data.examples import Data, batches_of, write_examples
from core.data.reader import READERS

list(READERS.values())
# Later than the imports: OpenBLAS waits without an end for memory that it does not get.
if beside := int(sys.argv[5]):
    data = next(line for line in open("/proc/self/status") if line.startswith("VmData"))
    taken = int(data.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (taken + beside, taken + beside))
path, cache = Path(sys.argv[1]), Path(sys.argv[2])
shape, tests = json.loads(sys.argv[3]), int(sys.argv[4])
began = time.perf_counter()
if path.suffix == ".u8":
    x = np.memmap(path, np.uint8, "r").reshape(-1, *shape)
    y = np.arange(len(x)) % 4
    batches, labels = batches_of(Data(x[:-tests], y[:-tests], x[-tests:], y[-tests:]))
    made = write_examples(batches, cache, name="large", source="large", labels=labels)
else:
    made = prepare(find_source(str(path), {}, path, path), cache=cache)
print(json.dumps({"examples": made.rows, "seconds": time.perf_counter() - began}))
"""


def sparse(path: Path, examples: int) -> None:
    """One hole."""
    with path.open("wb") as stream:
        stream.truncate(examples * int(np.prod(SHAPE)))


def archive(path: Path, examples: int) -> None:
    """An `.npz` of the same examples, written a row at a time."""
    y = np.arange(examples) % CLASSES
    row = bytes(int(np.prod(SHAPE)))
    parts = {"train": slice(0, examples - TESTS), "test": slice(examples - TESTS, examples)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as whole:
        for part, rows in parts.items():
            count = len(y[rows])
            with whole.open(f"x_{part}.npy", "w", force_zip64=True) as stream:
                header = {"descr": "|u1", "fortran_order": False, "shape": (count, *SHAPE)}
                np.lib.format.write_array_header_1_0(stream, header)
                for _ in range(count):
                    stream.write(row)
            with whole.open(f"y_{part}.npy", "w") as stream:
                np.lib.format.write_array(stream, y[rows])


FILES: dict[str, Callable[[Path, int], None]] = {"large.u8": sparse, "large.npz": archive}


@contextmanager
def limited(limit: int) -> Iterator[Path | None]:
    """A control group of so many bytes; None where none can be had."""
    if not (CONTROLLER / "cgroup.procs").exists() or os.geteuid() != 0:
        yield None
        return
    group = CONTROLLER / f"pscluster-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        end = time.monotonic() + END_SECONDS
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise


def _enter(group: Path | None) -> None:
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def measure(name: str, gibibytes: int, folder: Path) -> dict[str, Any]:
    """One file: made, prepared under the limit, removed."""
    path = folder / name
    cache = folder / "prepared"
    limit = gibibytes * GIBIBYTE // TIMES
    FILES[name](path, gibibytes * GIBIBYTE // int(np.prod(SHAPE)))
    with limited(limit) as group:
        words = [str(path), str(cache), json.dumps(SHAPE), str(TESTS), "0" if group else str(limit)]
        command = [sys.executable, "-c", PREPARE, *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=partial(_enter, group)
        )
        with Sampler({"it": process.pid}) as sampler:
            printed, _ = process.communicate()
        if process.returncode:
            raise SystemExit(
                f"big_data: {name}: preparing it under {limit} bytes ended with"
                f" {process.returncode}"
            )
        if group is not None:
            peak = int((group / "memory.max_usage_in_bytes").read_text())
        else:
            peak = None
    found = json.loads(printed)
    return {
        "file": name,
        "gibibytes": gibibytes,
        "limit_mb": limit / MEGABYTE,
        "limit": "control group" if group is not None else "RLIMIT_DATA",
        "on_disk_mb": path.stat().st_blocks * 512 / MEGABYTE,
        **found,
        "gibibytes_a_second": gibibytes / found["seconds"],
        "anonymous_mb": max(sampler.samples["it"]) / MEGABYTE,
        "with_page_cache_mb": None if peak is None else peak / MEGABYTE,
    }


def main() -> None:
    """Measure and print the object."""
    parser = arguments(
        "big_data", "Seconds and memory of preparing data eight times as large as the memory."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to write them, which takes 8 GiB and more; a new one in /tmp",
    )
    given = parser.parse_args()
    if given.quick:
        gibibytes = QUICK_GIBIBYTES
    else:
        gibibytes = GIBIBYTES
    rows = []
    for name in FILES:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            rows.append(measure(name, gibibytes, Path(folder)))
    summary = {
        "seconds": {row["file"]: row["seconds"] for row in rows},
        "anonymous_mb": {row["file"]: row["anonymous_mb"] for row in rows},
        "times_the_limit": TIMES,
    }
    publish("big_data", rows, summary, as_json=given.json)


if __name__ == "__main__":
    main()
