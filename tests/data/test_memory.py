"""Data larger than the memory that a process may have are prepared all the same."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROJECT = Path(__file__).resolve().parents[2]
MEGABYTE = 2**20
ALLOWED = 32 * MEGABYTE
"""Of memory besides what the imports took. The data have four times as many. With glibc of Debian 12 and any number of
threads an archive needs 12 of these MB, and the table, which has four times as many as Python's texts, needs 8."""
LIMITED = """
import json, resource, sys
from pathlib import Path
import numpy as np
import pyarrow.parquet, PIL.Image, scipy.io.wavfile
from cluster.data import find_source, prepare
from cluster.data.examples import Data, batches_of, write_examples
from cluster.data.reader import READERS

list(READERS.values())
taken = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (taken + int(sys.argv[3]),) * 2)
path, cache = Path(sys.argv[1]), Path(sys.argv[2])
if path.suffix == ".u8":
    x = np.memmap(path, np.uint8, "r").reshape(-1, 64, 1024)
    y = np.arange(len(x)) % 4
    batches, labels = batches_of(Data(x[:-8], y[:-8], x[-8:], y[-8:]))
    made = write_examples(batches, cache, name="large", source="large", labels=labels)
else:
    made = prepare(find_source(str(path), {}, path, path), cache=cache)
print(json.dumps([made.rows, made.inputs.example_bytes]))
"""


def prepared(path: Path, cache: Path) -> tuple[int, int]:
    """Rows and bytes of an example."""
    command = [sys.executable, "-c", LIMITED, str(path), str(cache), str(ALLOWED)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows, size = json.loads(done.stdout)
    return rows, size


def sparse(path: Path) -> tuple[Path, int]:
    with path.open("wb") as stream:
        stream.truncate(4 * ALLOWED)
    return path, 4 * ALLOWED // (64 * 1024)


def archive(path: Path) -> tuple[Path, int]:
    x, y = np.zeros((4 * ALLOWED // (64 * 1024), 8, 8, 1024), np.uint8), np.arange(4 * ALLOWED // (64 * 1024)) % 4
    np.savez(path, x_train=x[8:], y_train=y[8:], x_test=x[:8], y_test=y[:8])
    return path, len(x)


def table(path: Path) -> tuple[Path, int]:
    rows, values = 4 * ALLOWED // (72 * 2000), [f"{number}.25" for number in range(2000)]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["y", *(f"column{number}" for number in range(len(values)))])
        writer.writerows([row % 2, *values] for row in range(rows))
    return path, rows


@pytest.mark.parametrize(
    ("make", "name"),
    [(sparse, "large.u8"), (archive, "large.npz"), (table, "large.csv")],
)
def test_memory_is_that_of_a_batch(tmp_path: Path, make: object, name: str) -> None:
    assert callable(make)
    path, rows = make(tmp_path / name)
    found, size = prepared(path, tmp_path / "cache")
    assert found == rows
    if name != "large.csv":
        assert found * size == 4 * ALLOWED
