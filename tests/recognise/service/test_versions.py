"""The versions on disk: copies with one pointer, verified before they are served."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.exported.description import read_bytes, read_description, write_description
from core.ground.errors import ClusterError, UsageError
from recognise.service import versions as module
from recognise.service.loading import described
from recognise.service.versions import CURRENT, Versions
from tests.recognise.service.exports import export
from tests.recognise.service.running import manage, state_of
from tests.tables import table


def made(tmp_path: Path, *factors: int) -> Versions:
    """Versions of these exports, which lie in `export-N`."""
    versions = Versions(tmp_path / "versions")
    for factor in factors:
        export(tmp_path / f"export-{factor}", factor)
        versions.promote(tmp_path / f"export-{factor}")
    return versions


def numbers(versions: Versions) -> list[int]:
    return [version.number for version in versions.listed()]


def stated(folder: Path, **facts: Any) -> Path:
    """An export that says this of itself, or of its comparison with TensorFlow."""
    described = export(folder, 2.0)
    check = {name: facts.pop(name) for name in vars(described.check) if name in facts}
    write_description(folder, replace(described, **facts, check=replace(described.check, **check)))
    return folder


def refused(versions: Versions, folder: Path, words: str) -> None:
    """It becomes no version, and the reason is one line."""
    before = numbers(versions)
    with pytest.raises(UsageError) as caught:
        versions.promote(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert numbers(versions) == before


def test_a_version_is_a_copy_that_the_export_no_longer_changes(tmp_path: Path) -> None:
    versions = made(tmp_path, 1, 1)
    shutil.rmtree(tmp_path / "export-1")
    (version,) = versions.listed()  # the same export twice is one version
    assert (version.number, version.current, version.problem) == (1, True, "")
    assert versions.path(1).stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in versions.path(1).iterdir()) == ["export.json", "model.onnx"]


def test_rollbacks_go_back_one_promotion_each(tmp_path: Path) -> None:
    versions = made(tmp_path, 1, 2, 3)
    assert versions.current() == 3
    assert [versions.rollback().number, versions.rollback().number] == [2, 1]
    with pytest.raises(UsageError, match="there is no version before this one"):
        versions.rollback()
    assert versions.current() == 1
    made(tmp_path, 4)
    assert versions.current() == 4  # a number is never given twice


def test_an_export_that_changes_while_it_is_copied_becomes_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another whole export lies there by then, which was never tried."""
    monkeypatch.setattr(module, "tried", lambda folder, limits: described(folder))

    def changing(path: Path, limit: int) -> bytes:
        if path == folder / "export.json":
            export(folder, 3.0)
        return read_bytes(path, limit)

    versions = made(tmp_path, 1)
    folder = stated(tmp_path / "other")
    monkeypatch.setattr(module, "read_bytes", changing)
    refused(versions, folder, "it changed while it was copied: promote it again")


def test_a_version_that_a_later_rollback_goes_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    monkeypatch.setattr(module, "tried", lambda folder, limits: described(folder))
    versions = made(tmp_path, 1, 2, 3, 4)
    assert numbers(versions) == [2, 3, 4], "so many stay, and no more"
    assert versions.rollback().number == 3
    made(tmp_path, 5)
    assert [versions.rollback().number, versions.rollback().number] == [3, 2]
    assert versions.path(2).is_dir()


def test_a_rollback_to_a_damaged_version_is_refused(tmp_path: Path) -> None:
    versions = made(tmp_path, 1, 2)
    (versions.path(1) / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"another file than export.json says"):
        versions.rollback()
    assert versions.current() == 2
    assert [version.description is None for version in versions.listed()] == [True, False]


def test_a_damaged_or_linked_export_becomes_no_version(tmp_path: Path) -> None:
    versions = made(tmp_path, 1)
    model = stated(tmp_path / "linked") / "model.onnx"
    model.rename(tmp_path / "elsewhere.onnx")
    model.symlink_to(tmp_path / "elsewhere.onnx")
    (stated(tmp_path / "bad") / "model.onnx").write_bytes(b"damaged")
    for name, words in (
        ("bad", "another file than export.json says"),
        ("nowhere", "expected a folder that `fab export` wrote"),
        ("linked", "a link"),
    ):
        refused(versions, tmp_path / name, words)
    assert [path.name for path in (tmp_path / "versions" / "versions").iterdir()] == ["1"]


def test_windows_that_no_request_can_carry_are_refused_before_any_is_made(tmp_path: Path) -> None:
    given = replace(export(tmp_path / "small").input, samples=1 << 21, shape=(1 << 21, 3))
    folder = stated(tmp_path / "large", input=given)
    refused(made(tmp_path), folder, "expected windows of at most 16777216 bytes")


@pytest.mark.parametrize("name", ["export.json", "model.onnx"])
def test_a_damaged_current_version_keeps_no_other_one_out(tmp_path: Path, name: str) -> None:
    versions = made(tmp_path, 1)
    (versions.path(1) / name).write_bytes(b"damaged")
    # The same export is a whole version again.
    assert versions.promote(tmp_path / "export-1").number == 2
    assert [version.description is None for version in versions.listed()] == [True, False]
    assert versions.current() == 2


def test_a_version_with_other_labels_is_refused(tmp_path: Path) -> None:
    folder = stated(tmp_path / "other", labels=("SITTING", "WALKING"))
    refused(made(tmp_path, 1), folder, "expected the labels of the served version")


@pytest.mark.parametrize(("facts", "said"), table("recognise/service/checks", "refused"))
def test_an_export_that_disagrees_with_tensorflow_becomes_no_version(
    tmp_path: Path, facts: dict[str, Any], said: str
) -> None:
    folder = stated(tmp_path / "other", **facts)
    line = f"{folder / 'export.json'}: check: {said}: export the run again"
    refused(made(tmp_path, 1), folder, line)


@pytest.mark.parametrize("facts", table("recognise/service/checks", "taken"))
def test_an_export_within_the_bounds_becomes_a_version(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    assert made(tmp_path).promote(stated(tmp_path / "other", **facts)).number == 1


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"schema":2}', '{"schema":1,"history":[0]}', '{"schema":1,"history":["1"]}'],
)
def test_a_damaged_pointer_is_named(tmp_path: Path, content: str) -> None:
    versions = made(tmp_path, 1)
    (versions.folder / CURRENT).write_text(content)
    with pytest.raises(UsageError, match=r"current.json: expected the history of promotions"):
        versions.current()


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    export(tmp_path / "one")
    unverified = stated(tmp_path / "unverified", windows=0)
    done = manage(tmp_path, "promote", "--model", str(tmp_path / "one"))
    assert done.stdout == (
        "har: version 1 (run 20260101T000000Z-train) is to be served; a service that runs takes"
        " it over\n"
    )
    (listed,) = json.loads(manage(tmp_path, "list", "--json").stdout)["versions"]
    found = [listed[name] for name in ("version", "current", "sha256")]
    assert found == [1, True, read_description(tmp_path / "one").sha256]
    assert "current" in manage(tmp_path, "list").stdout
    for words, said in (
        (("rollback", "--name", "other"), "there is no version before this one"),
        (
            ("promote", "--model", str(unverified)),
            "compared with TensorFlow, got none: export the run again",
        ),
        (("promote",), "promote: expected --model EXPORT or --run RUN"),
        (("list", "--name", "../har"), "../har"),
    ):
        done = manage(tmp_path, *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr
    assert state_of(tmp_path).stat().st_mode & 0o777 == 0o700


def test_neither_a_list_nor_a_rollback_makes_a_folder_where_nothing_was_promoted(
    tmp_path: Path,
) -> None:
    assert manage(tmp_path, "list").stdout.startswith("no version yet")
    assert manage(tmp_path, "rollback").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_pointer_that_cannot_be_written_gets_the_advice_for_a_service(tmp_path: Path) -> None:
    versions = made(tmp_path, 1)
    (versions.folder / CURRENT).unlink()
    (versions.folder / CURRENT).mkdir()
    with pytest.raises(ClusterError, match="work in another folder") as caught:
        versions._point((1,))
    assert "`runs`" not in str(caught.value)
