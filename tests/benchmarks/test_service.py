"""`benchmarks.service`: what it sums up, and its requests against real services."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service import places
from benchmarks.service.__main__ import summarize
from deploy.common.project import ROOT
from tests.recognise.exports import export
from tools import build_image


def test_sums_are_of_places_and_of_rounds_that_stood_side_by_side() -> None:
    rows = [
        {"what": "sessions", "place": "tenth", "sessions": 20, "p99_ms": 84.0},
        {"what": "sessions", "place": "tenth", "sessions": 50, "p99_ms": 950.0},
        {"what": "sessions", "place": "tenth", "sessions": 100, "refused": "too fast"},
        *(
            {"what": "infer", "server": server, "place": place, "processes": count, "clients": 4,
             "round_windows_per_second": rates}
            for server, place, count, rates in (
                ("ours", "host", 1, [200.0, 600.0, 300.0]), ("ours", "host", 2, [1.0, 1.0, 1.0]),
                ("ours", "tenth", 1, [1.0, 1.0, 1.0]), ("triton", "host", 1, [100.0, 200.0, 300.0]),
            )
        ),
    ]  # fmt: skip
    assert summarize(rows) == {
        "tenth": {"p99_ms": {"20": 84.0, "50": 950.0}, "below_100_ms": 20},
        "over_triton": {"4": 2.0},
    }


def test_a_container_needs_an_image_of_either_store(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[build_image.Store] = []

    def size(store: build_image.Store) -> str:
        if store not in there:
            raise build_image.ImageError("no such image")
        return "2.05 GB"

    monkeypatch.setattr(build_image, "why_not", lambda programs: "")
    monkeypatch.setattr(build_image, "size", size)
    assert "run `make image`" in places.why_not("container")
    there.append(build_image.Store())
    assert (places.why_not("container"), places.store_of_image()) == ("", there[0])
    there.append(build_image.Store(None))
    assert places.store_of_image() == there[1], "that of `make image` is newer"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_services_and_a_loop_are_asked_in_turn(tmp_path: Path) -> None:
    words = ("--model", str(export(tmp_path / "export")), "--quick", "--places", "host", "--no-sessions", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service", *words], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["server"], row["processes"], row["clients"]) for row in rows] == [
        ("loop", 1, 1), *(("ours", 1, count) for count in (1, 4, 16)), *(("ours", 2, count) for count in (4, 16)),
        *(("ours", 4, count) for count in (4, 16)),
    ]  # fmt: skip
    assert all(row["windows_per_second"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)
