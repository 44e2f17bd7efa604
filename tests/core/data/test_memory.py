"""Data larger than the memory that a process may have are prepared all the same."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.ran import python

ALLOWED = 32 << 20
"""The memory besides what the imports took. The data have four times as many. With glibc of Debian
12 and any number of threads an archive needs 12 of these MB."""
LIMITED = """
import json, resource, sys
from pathlib import Path
import numpy as np
from core.data import find_source, prepare
from core.data.prepare import Data, batches_of, write_examples
from core.data.source import READERS

list(READERS.values())
lines = open("/proc/self/status")
taken = int(next(line for line in lines if line.startswith("VmData")).split()[1]) * 1024
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
ROWS = 4 * ALLOWED // (64 * 1024)


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(4 * ALLOWED)


def archive(path: Path) -> None:
    x = np.zeros((ROWS, 8, 8, 1024), np.uint8)
    y = np.arange(ROWS) % 4
    np.savez(path, x_train=x[8:], y_train=y[8:], x_test=x[:8], y_test=y[:8])


@pytest.mark.parametrize(
    ("make", "name", "rows", "size"),
    [
        (sparse, "large.u8", ROWS, 64 * 1024),
        (archive, "large.npz", ROWS, 64 * 1024),
    ],
)
def test_memory_is_that_of_a_batch(
    tmp_path: Path, make: Callable[[Path], None], name: str, rows: int, size: int
) -> None:
    make(tmp_path / name)
    said = python("-c", LIMITED, tmp_path / name, tmp_path / "cache", str(ALLOWED))
    assert json.loads(said) == [rows, size]
