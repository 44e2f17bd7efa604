"""Thirteen million lines of CSV become windows: seconds, CPU and memory of one process.

Two files are invented: `hhar` in that set's format, as many lines as the published one has, and
`six` of six channels at 50 Hz. Each is read by its format, and in turn by the shortest program over
pyarrow, which reads the table whole and cuts runs of a person and a label: it looks at no time,
unit or damage, resamples nothing and has no test people. Each reading is a process of its own; its
memory is VmHWM of /proc/self/status, because ru_maxrss begins with that of the process that forked
it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from benchmarks.report import arguments, memory_bytes, publish, tell

SIZES = {"full": (13_000_000, 103.2), "quick": (1_300_000, 10.32), "smoke": (260_000, 3.0)}
"""Lines of `six`, and seconds of each recording of `hhar`."""
BOUT_LINES = 13_000
LABELS = np.array(["lie", "run", "sit", "stairs", "walk"])
PEOPLE = 20
STEPS = 128
STRIDE = 64
WORDS = {"hhar": ("User", "Device", "gt"), "six": ("person", "label")}
VALUES = {"hhar": ("x", "y", "z"), "six": ("ax", "ay", "az", "gx", "gy", "gz")}
SIX = {
    "time": {"column": "t", "unit": "ms", "hertz": 50},
    "channels": [
        {"name": "acc", "columns": ["ax", "ay", "az"], "unit": "g"},
        {"name": "gyro", "columns": ["gx", "gy", "gz"], "unit": "rad/s"},
    ],
    "label": {"column": "label"},
    "person": {"column": "person"},
}


def write_six(path: Path, lines: int) -> None:
    """Write so many lines of `t,ax,ay,az,gx,gy,gz,label,person`."""
    import pyarrow
    from pyarrow import csv

    random = np.random.default_rng(0)
    with path.open("wb") as stream:
        for begin in range(0, lines, BOUT_LINES):
            at = np.arange(begin, min(begin + BOUT_LINES, lines))
            values = random.normal([0, 0, 1, 0, 0, 0], 0.3, (len(at), 6)).round(5)
            columns: dict[str, Any] = {"t": at * 20}
            columns |= dict(zip(VALUES["six"], values.T, strict=True))
            columns["label"] = [LABELS[begin // BOUT_LINES % len(LABELS)]] * len(at)
            columns["person"] = [f"p{begin * PEOPLE // lines}"] * len(at)
            options = csv.WriteOptions(include_header=begin == 0)
            csv.write_csv(pyarrow.table(columns), stream, options)


def described(kind: str, path: Path) -> int:
    """Read a file as a training does. Returns the number of windows."""
    from core.data.prepare import prepare
    from core.data.source import DESCRIBED, Source

    form = kind
    if kind == "six":
        form = str(path.with_suffix(".yaml"))
    cache = path.parent / f"cache-{os.getpid()}"
    options = {"format": form}
    return prepare(
        Source(DESCRIBED, path, ""),
        window_steps=STEPS,
        window_stride=STRIDE,
        cache=cache,
        options=options,
    ).rows


def with_pyarrow(kind: str, path: Path) -> int:
    """Read a file whole and cut it. Returns the number of windows."""
    from pyarrow import csv

    names = (*VALUES[kind], *WORDS[kind])
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=names))
    words = [table[name].combine_chunks().dictionary_encode().indices for name in WORDS[kind]]
    codes = np.stack([word.to_numpy() for word in words])
    samples = np.stack([table[name].to_numpy() for name in VALUES[kind]], axis=1)
    samples = samples.astype(np.float32)
    ends = np.flatnonzero((np.diff(codes, axis=1) != 0).any(axis=0)) + 1
    found = []
    for begin, end in zip([0, *ends], [*ends, len(samples)], strict=True):
        if end - begin >= STEPS:
            views = np.lib.stride_tricks.sliding_window_view(samples[begin:end], STEPS, axis=0)
            found.append(views[::STRIDE].transpose(0, 2, 1).copy())
    windows = np.concatenate(found)
    np.save(path.parent / f"windows-{os.getpid()}.npy", windows)
    return len(windows)


CONTESTANTS: dict[str, Callable[[str, Path], int]] = {
    "described": described,
    "pyarrow": with_pyarrow,
}


def measured(contestant: str, kind: str, path: Path) -> dict[str, Any]:
    """Read a file in this process. Returns what it took."""
    begin = time.monotonic()
    windows = CONTESTANTS[contestant](kind, path)
    return {
        "windows": windows,
        "seconds": time.monotonic() - begin,
        "cpu_seconds": time.process_time(),
        "peak_mb": memory_bytes(field="VmHWM") / 1e6,
    }


def in_child(contestant: str, kind: str, path: Path) -> dict[str, Any]:
    """Return the row of one reading, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.recordings", "--read", contestant, kind, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return {"file": kind, "contestant": contestant, **json.loads(done.stdout)}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the rounds by file, and how many times pyarrow's seconds ours are."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(row["file"] for row in rows):

        def of(contestant: str, key: str, kind: str = kind) -> float:
            own = [row for row in rows if (row["file"], row["contestant"]) == (kind, contestant)]
            return float(median(row[key] for row in own))

        found[kind] = {
            "lines": next(row["lines"] for row in rows if row["file"] == kind),
            **{key: of("described", key) for key in ("seconds", "cpu_seconds", "peak_mb")},
            "seconds_over_pyarrow": of("described", "seconds") / of("pyarrow", "seconds"),
            "peak_over_pyarrow": of("described", "peak_mb") / of("pyarrow", "peak_mb"),
        }
    return found


def _files(folder: Path, lines: int, seconds: float) -> dict[str, tuple[Path, int]]:
    from benchmarks.synthetic_hhar import write_hhar

    hhar = folder / "Phones_accelerometer.csv"
    six = folder / "six.csv"
    count = write_hhar(hhar, seconds=seconds)
    write_six(six, lines)
    six.with_suffix(".yaml").write_text(yaml.safe_dump(SIX), encoding="utf-8")
    return {"hhar": (hhar, count), "six": (six, lines)}


def main() -> None:
    """Write the files into a temporary folder, read them in turn, and print the object."""
    parser = arguments("recordings", "Thirteen million lines of CSV become windows.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        contestant, kind, path = given.read
        json.dump(measured(contestant, kind, Path(path)), sys.stdout)
        return
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        files = _files(Path(folder), *SIZES[given.size])
        for number in range(given.rounds):
            for kind, (path, lines) in files.items():
                for contestant in CONTESTANTS:
                    row = {**in_child(contestant, kind, path), "lines": lines, "round": number}
                    tell(row)
                    rows.append(row)
    publish("recordings", rows, summarize(rows), given)


if __name__ == "__main__":
    main()
