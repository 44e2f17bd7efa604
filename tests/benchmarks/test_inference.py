"""`benchmarks.inference`: exports that no ratio compares."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.inference.__main__ import described
from core.exported import read_description
from core.exported.description import Description
from core.ground.errors import UsageError
from tests.recognise.exports import export


def test_exports_of_one_run_are_named_and_of_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [export(tmp_path / name) for name in ("first", "again")]
    assert list(described(folders)) == ["onnx float32", "onnx float32 (again)"]

    def of_another_run(folder: Path) -> Description:
        found = read_description(folder)
        if folder == folders[0]:
            return found
        return replace(found, run=replace(found.run, parameters_sha256="other"))

    monkeypatch.setattr("benchmarks.inference.__main__.read_description", of_another_run)
    with pytest.raises(UsageError, match=r"again: expected an export of .* as the first"):
        described(folders)
