"""An interrupted seed continues; one that is done is not trained again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import accuracy


class Played:
    """In place of a cluster: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def job(self, name: str, settings: Sequence[str]) -> dict[str, Any]:
        self.asked.append([name, *settings])
        return {"result_path": "temporary"}

    def coordinate(self, module: str, names: Sequence[str], flags: Sequence[str]) -> dict[str, Any]:
        self.asked.append([module, *names, *flags])
        return {"result_path": "kept"}


def run(folder: Path, status: str | None) -> None:
    folder.mkdir(parents=True)
    (folder / "coordinator.log").touch()
    if status is not None:
        (folder / "result.json").write_text(
            json.dumps({"status": status, "final": {"accuracy": 0.5}})
        )


def test_runs_are_kept_continued_and_never_repeated(tmp_path: Path) -> None:
    played: Any = Played()
    assert accuracy._trained(played, ["a=1"], None)["result_path"] == "temporary"
    kept = tmp_path / "seeds.json.runs" / "3"
    accuracy._trained(played, ["a=1"], kept)
    run(kept / "20260101T000000Z-train", None)
    accuracy._trained(played, ["a=1"], kept)
    assert [("--resume" in words, f"--set=runs={kept}" in words) for words in played.asked] == [
        (False, False),
        (False, True),
        (True, True),
    ]
    run(kept / "20260101T000000Z-train-1", "done")
    found = accuracy._trained(played, ["a=1"], kept)
    assert found["final"] == {"accuracy": 0.5}
    assert Path(found["result_path"]).parent.name == "20260101T000000Z-train-1"
    assert len(played.asked) == 3
