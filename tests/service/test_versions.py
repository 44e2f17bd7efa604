"""The versions on disk: copies with one pointer, verified before they are served."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError, UsageError
from cluster.exported.description import read, write
from recognise.service import versions as module
from recognise.service.versions import CURRENT, Versions
from tests.service.exports import export
from tests.service.running import manage, state_of


def made(tmp_path: Path, *factors: float) -> Versions:
    versions = Versions(tmp_path / "versions")
    for factor in factors:
        export(tmp_path / f"export-{factor}", factor)
        versions.promote(tmp_path / f"export-{factor}")
    return versions


def test_a_version_is_a_copy_that_the_export_no_longer_changes(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0)
    shutil.rmtree(tmp_path / "export-1.0")
    (version,) = versions.listed()
    assert (version.number, version.current, version.problem) == (1, True, "")
    assert versions.path(1).stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in versions.path(1).iterdir()) == ["export.json", "model.onnx"]


def test_the_same_export_twice_is_one_version(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0, 1.0)
    assert [version.number for version in versions.listed()] == [1]


def test_rollbacks_go_back_one_promotion_each(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0, 2.0, 3.0)
    assert versions.current() == 3
    assert [versions.rollback().number, versions.rollback().number] == [2, 1]
    with pytest.raises(UsageError, match="there is no version before this one"):
        versions.rollback()
    assert versions.current() == 1
    export(tmp_path / "export-4", 4.0)
    assert versions.promote(tmp_path / "export-4").number == 4  # a number is never given twice


def test_a_rollback_to_a_damaged_version_is_refused(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0, 2.0)
    (versions.path(1) / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"another file than export.json says"):
        versions.rollback()
    assert versions.current() == 2
    assert [version.description is None for version in versions.listed()] == [True, False]


def test_a_damaged_export_becomes_no_version(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0)
    export(tmp_path / "bad", 2.0)
    (tmp_path / "bad" / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"another file than export.json says"):
        versions.promote(tmp_path / "bad")
    with pytest.raises(UsageError, match="expected a folder that `fab export` wrote"):
        versions.promote(tmp_path / "nowhere")
    export(tmp_path / "linked", 2.0)
    (tmp_path / "linked" / "model.onnx").rename(tmp_path / "elsewhere.onnx")
    (tmp_path / "linked" / "model.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(UsageError, match="a link"):
        versions.promote(tmp_path / "linked")
    assert [version.number for version in versions.listed()] == [1]
    assert sorted(path.name for path in (tmp_path / "versions" / "versions").iterdir()) == ["1"]


def test_windows_that_no_request_can_carry_are_refused_before_any_is_made(tmp_path: Path) -> None:
    described = export(tmp_path / "large")
    large = replace(described.input, samples=1 << 21, shape=(1 << 21, 3))
    write(tmp_path / "large", replace(described, input=large))
    with pytest.raises(UsageError, match="expected windows of at most 16777216 bytes"):
        made(tmp_path).promote(tmp_path / "large")


@pytest.mark.parametrize("name", ["export.json", "model.onnx"])
def test_a_damaged_current_version_keeps_no_other_one_out(tmp_path: Path, name: str) -> None:
    versions = made(tmp_path, 1.0)
    (versions.path(1) / name).write_bytes(b"damaged")
    assert versions.promote(tmp_path / "export-1.0").number == 2  # the same export is a whole version again
    assert [version.description is None for version in versions.listed()] == [True, False]
    assert versions.current() == 2


def test_a_version_with_other_labels_or_windows_is_refused(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0)
    described = export(tmp_path / "other", 2.0)
    write(tmp_path / "other", replace(described, labels=("SITTING", "WALKING")))
    with pytest.raises(UsageError, match="expected the labels of the served version"):
        versions.promote(tmp_path / "other")


INT8 = {"quantized": "dynamic"}


@pytest.mark.parametrize(
    ("more", "check", "said"),
    [
        ({}, {"windows": 0}, "expected test windows that were compared with TensorFlow, got none"),
        (
            {},
            {"greatest_difference": 2e-4},
            "expected logits within 0.0001 of TensorFlow's, got a difference of 0.0002",
        ),
        ({}, {"same_labels": 0.98}, "expected TensorFlow's label for each window, got it for 98.0%"),
        (INT8, {"accuracy": 0.88}, "expected at most 1% fewer right labels than TensorFlow, got 2.0% fewer"),
        (INT8, {"accuracy": None}, "expected the accuracies of TensorFlow and of the int8 model, got none"),
        (INT8, {"windows": 0}, "compared with TensorFlow, got none"),
    ],
)
def test_an_export_that_disagrees_with_tensorflow_becomes_no_version(
    tmp_path: Path, more: dict[str, Any], check: dict[str, Any], said: str
) -> None:
    versions = made(tmp_path, 1.0)
    described = export(tmp_path / "other", 2.0)
    write(tmp_path / "other", replace(described, **more, check=replace(described.check, **check)))
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        versions.promote(tmp_path / "other")
    assert str(refused.value).startswith(f"{tmp_path / 'other' / 'export.json'}: check: ")
    assert str(refused.value).endswith("export the run again")
    assert "\n" not in str(refused.value)
    assert [version.number for version in versions.listed()] == [1]


@pytest.mark.parametrize(
    ("more", "check"),
    [
        ({}, {"greatest_difference": 1e-4, "same_labels": 0.999}),
        ({}, {"same_labels": None, "accuracy": None, "accuracy_tensorflow": None}),
        (INT8, {"greatest_difference": 1.8, "same_labels": 0.98, "accuracy": 0.895}),
    ],
)
def test_an_export_within_the_bounds_becomes_a_version(
    tmp_path: Path, more: dict[str, Any], check: dict[str, Any]
) -> None:
    described = export(tmp_path / "other", 2.0)
    write(tmp_path / "other", replace(described, **more, check=replace(described.check, **check)))
    assert made(tmp_path).promote(tmp_path / "other").number == 1


def test_only_so_many_versions_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    versions = made(tmp_path, *(float(factor) for factor in range(1, 7)))
    assert [version.number for version in versions.listed()] == [4, 5, 6]
    assert [versions.rollback().number, versions.rollback().number] == [5, 4]
    with pytest.raises(UsageError, match="no version before"):
        versions.rollback()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"schema":2}', '{"schema":1,"history":[0]}', '{"schema":1,"history":["1"]}']
)
def test_a_damaged_pointer_is_named(tmp_path: Path, content: str) -> None:
    versions = made(tmp_path, 1.0)
    (versions.folder / CURRENT).write_text(content)
    with pytest.raises(UsageError, match=r"current.json: expected the history of promotions"):
        versions.current()


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    export(tmp_path / "one")
    state = state_of(tmp_path)
    done = manage(tmp_path, "promote", "--model", str(tmp_path / "one"))
    assert (
        done.stdout
        == "har: version 1 (run 20260101T000000Z-train) is to be served; a service that runs takes it over\n"
    )
    (listed,) = json.loads(manage(tmp_path, "list", "--json").stdout)["versions"]
    assert (listed["version"], listed["current"], listed["sha256"]) == (1, True, read(tmp_path / "one").sha256)
    assert "current" in manage(tmp_path, "list").stdout
    refused = manage(tmp_path, "rollback", "--name", "other")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    other = export(tmp_path / "unverified", 2.0)
    write(tmp_path / "unverified", replace(other, check=replace(other.check, windows=0)))
    refused = manage(tmp_path, "promote", "--model", str(tmp_path / "unverified"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "compared with TensorFlow, got none: export the run again" in refused.stderr
    assert manage(tmp_path, "promote").returncode == 2
    assert manage(tmp_path, "list", "--name", "../har").returncode == 2
    assert state.stat().st_mode & 0o777 == 0o700


def test_neither_a_list_nor_a_rollback_makes_a_folder_where_nothing_was_promoted(tmp_path: Path) -> None:
    assert manage(tmp_path, "list").stdout.startswith("no version yet")
    refused = manage(tmp_path, "rollback")
    assert (refused.returncode, refused.stderr.startswith("there is no version before this one")) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_pointer_that_cannot_be_written_gets_the_advice_for_a_service(tmp_path: Path) -> None:
    versions = made(tmp_path, 1.0)
    (versions.folder / CURRENT).unlink()
    (versions.folder / CURRENT).mkdir()
    with pytest.raises(ClusterError, match="work in another folder") as caught:
        versions._point((1,))
    assert "`runs`" not in str(caught.value)
