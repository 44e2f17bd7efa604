"""A cross-validation from Python, and by its folder."""

import json
from pathlib import Path

import pytest

import pscluster
from tests.tables import table


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "cv.json").write_text(json.dumps(table("pscluster/rows", "cv.json")))
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
