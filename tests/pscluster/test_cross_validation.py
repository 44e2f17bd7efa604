"""A cross-validation from Python, and by its folder."""

import json
from pathlib import Path
from typing import Any

import pytest

import pscluster
from core.inventory.templates import local_inventory
from tests.cluster.jobs.cluster import own_recordings

SUMMARY = {
    "figure": "accuracy",
    "mean": 0.75,
    "spread_over_seeds": None,
    "spread_over_folds": 0.1,
    "seeds": {"0": 0.75},
    "folds": {"0": 0.8, "1": 0.7},
    "groups": {"7": 0.8, "9": 0.7},
}


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "cv.json").write_text(
        json.dumps({"summary": SUMMARY, "folds": [{"fold": 0}, {"fold": 1}]})
    )
    found = pscluster.CrossValidation(tmp_path)
    assert (found.mean, found.spread_over_folds, found.spread_over_seeds) == (0.75, 0.1, None)
    assert found.groups == {7: 0.8, 9: 0.7}
    assert [fold["fold"] for fold in found.folds] == [0, 1]


def test_another_folder_and_a_damaged_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(pscluster.UsageError, match=r"found no cv\.json in it"):
        pscluster.CrossValidation(tmp_path)
    for damage in ("{", "[]", '{"summary": 3, "folds": []}'):
        (tmp_path / "cv.json").write_text(damage)
        with pytest.raises(
            pscluster.ClusterError, match="expected the folds of a cross-validation"
        ):
            _ = pscluster.CrossValidation(tmp_path).record


@pytest.mark.long
def test_people_are_held_out_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small: dict[str, Any] = {"mode": "single", "epochs": 1, "batch_size": 20, "slots": 1}
    lines: list[str] = []
    (tmp_path / "inventory.yaml").write_text(local_inventory(1, 1))
    cluster = pscluster.Cluster(tmp_path / "inventory.yaml", report=lines.append)
    own_recordings(tmp_path / "mine.npz")
    found = cluster.cross_validate("spectral", str(tmp_path / "mine.npz"), folds="groups", **small)
    assert sorted(found.groups) == [0, 1, 2, 3]
    assert len(found.folds) == 4
    assert any("fold 4 of 4, seed 0: accuracy" in line for line in lines)
    with pytest.raises(pscluster.UsageError, match=r"jobs\.cv\.folds"):
        cluster.cross_validate("spectral", str(tmp_path / "mine.npz"), folds=1, **small)
