"""A cross-validation from Python, and by its folder."""

import json
from pathlib import Path

import pytest

import pscluster

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
