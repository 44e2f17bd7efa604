"""`experiments.service`: what it sums up, and its requests against real services."""

import json
from pathlib import Path

import pytest

from experiments.service import places
from tests.ran import python
from tests.recognise.exports import export
from tools import build_image


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
    model = str(export(tmp_path / "export"))
    flags = ["--model", model, "--quick", "--places", "host", "--no-sessions", "--json"]
    said = python("-m", "experiments.service", *flags)
    rows = json.loads(said)["rows"]
    assert [(row["server"], row["processes"], row["clients"]) for row in rows] == [
        ("loop", 1, 1),
        *(("ours", 1, count) for count in (1, 4, 16)),
        *(("ours", 2, count) for count in (4, 16)),
        *(("ours", 4, count) for count in (4, 16)),
    ]
    assert all(row["windows_per_second"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)
