"""Recordings larger than memory, and files that only pretend to be some."""

import gzip
import json
from errno import ENOSPC
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from core.data import archive
from core.data.described import text_bytes
from core.data.described.series import IN_MEMORY_BYTES, Spool
from tests.core.data.described.movement import (
    DESCRIBED_SO,
    EVERYONE,
    Form,
    one_file,
    put,
    windows_of,
)
from tests.core.data.desk import refused
from tests.ran import python

ALLOWED = 48 << 20
LIMITED = """
import json, resource, sys
from pathlib import Path
import numpy as np
import core.data.described.reader, core.documents.yaml_document
from core.data import prepare
from core.data.source import READERS
from core.data.source import DESCRIBED, Source

list(READERS.values())
from scipy import ndimage, signal

np.ones((600, 48)) @ np.ones((48, 48))  # BLAS takes what it keeps
status = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Vm"))
taken = int(status["VmData"].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (taken + int(sys.argv[3]),) * 2)
folder, cache = map(Path, sys.argv[1:3])
told = []
made = prepare(
    Source(DESCRIBED, folder, ""),
    window_steps=500,
    window_stride=500,
    cache=cache,
    progress=lambda stage, done, total: told.append((stage, done, total)),
)
reading = [done for stage, done, _ in told if stage == "reading"]
print(json.dumps([made.rows, len(reading), reading == sorted(reading)]))
"""
CHANNELS = 48
LINES = 2 * ALLOWED // (4 * CHANNELS) // 2
"""Each becomes two samples."""


@pytest.mark.long
def test_memory_is_not_that_of_the_samples(tmp_path: Path) -> None:
    """Their float32 alone take twice what the process may have; a session is a twentieth."""
    names = [f"c{number}" for number in range(CHANNELS)]
    channels = [{"name": name, "columns": name, "unit": "none"} for name in names]
    described = {
        **DESCRIBED_SO,
        "time": {"column": "t", "unit": "ms", "hertz": 100},
        "channels": channels,
        "files": "r.csv",
    }
    folder = put(tmp_path / "own", {"r.csv": b""}, described)
    values = ",".join(["0.5"] * CHANNELS)
    with (folder / "r.csv").open("w", encoding="ascii") as stream:
        stream.write(",".join(["t", *names, "label", "person"]) + "\n")
        for line in range(LINES):
            stream.write(f"{20 * line},{values},{line // 5000 % 2},p{20 * line // LINES}\n")
    rows, reports, is_rising = json.loads(
        python("-c", LIMITED, folder, tmp_path / "cache", str(ALLOWED))
    )
    assert rows > 2 * LINES / 500 * 0.9
    assert reports > 100
    assert is_rising


def test_a_spool_gives_back_what_it_kept() -> None:
    spool = Spool()
    random = np.random.default_rng(0)
    given = [random.normal(size=(rows, 3)) for rows in (1, 1000, IN_MEMORY_BYTES // 24, 0, 7)]
    kept = [spool.keep(rows) for rows in given]
    assert spool.rows(kept).tobytes() == np.concatenate(given).tobytes()
    assert spool.rows(kept[3:]).shape == (7, 3)


def test_a_disk_that_takes_no_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> IO[bytes]:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with refused("/var/tmp: cannot keep ... (No space left on device); make room, or set TMPDIR"):
        Spool().keep(np.zeros(IN_MEMORY_BYTES))


def test_a_file_in_a_folder_may_be_larger_than_what_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LARGEST_TEXT_BYTES", 1000)
    assert windows_of(one_file(tmp_path / "own")).rows == 24


def test_a_line_without_an_end_and_a_bomb_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Form().bytes_of(EVERYONE[:3])
    long = head + b"1" * (text_bytes.LONGEST_LINE_BYTES + text_bytes.AT_ONCE_BYTES)
    with refused("r.csv: a line has more than 16384 bytes"):
        windows_of(one_file(tmp_path / "own", long))
    monkeypatch.setattr(text_bytes, "SUSPICIOUS_BYTES", 1000)
    bomb = gzip.compress(head + b"\n" * 1_000_000)
    folder = one_file(tmp_path / "bomb", bomb, "r.csv.gz")
    with refused("r.csv.gz: unpacks to more than 200 times its size"):
        windows_of(folder)
