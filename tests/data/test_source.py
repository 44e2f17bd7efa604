"""The search order, and the one line that says which recordings and why."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster.data import Source, find_source
from cluster.data.source import PROJECT_ROOT
from cluster.errors import DataError
from tests.data.makers import hapt_files, uci_har_files, write_folder, write_zip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    return folder


def test_each_place_is_asked_before_the_next(project: Path, tmp_path: Path) -> None:
    user_cache = tmp_path / "user-cache"

    def found(given: str | None = None, **environ: str) -> Source:
        source = find_source(given, environ, project, user_cache)
        assert "\n" not in source.why
        return source

    assert found().kind == "synthetic"
    assert "none in" in found().why
    cached = write_zip(user_cache / "UCI HAR Dataset.zip", uci_har_files())
    assert (found().kind, found().path) == ("uci-har", cached)
    shared = write_zip(tmp_path / "work" / "shared" / "data" / "hapt" / "HAPT Data Set.zip", hapt_files())
    assert (found().kind, found().path) == ("hapt", shared)
    assert "found in" in found().why
    own = tmp_path / "own.npz"
    np.savez(own, x=np.zeros(1))
    assert found(PSCLUSTER_DATA=str(own)) == Source("npz", own, f"{own} ($PSCLUSTER_DATA)")
    assert found(str(cached), PSCLUSTER_DATA=str(own)) == Source("uci-har", cached, f"{cached} (as asked)")
    assert found("synthetic", PSCLUSTER_DATA=str(own)).kind == "synthetic"
    assert found(PSCLUSTER_DATA="synthetic").why == "synthetic recordings ($PSCLUSTER_DATA)"
    assert found(PSCLUSTER_DATA="").path == shared


@pytest.mark.parametrize(
    ("below", "kind"),
    [
        ("", "hapt"),
        ("HAPT Data Set", "hapt"),
        ("hapt", "hapt"),
        ("hapt/HAPT Data Set", "hapt"),
        ("UCI HAR Dataset", "uci-har"),
        ("downloads/UCI HAR Dataset", "uci-har"),
    ],
)
def test_a_folder_may_be_the_set_or_hold_it(tmp_path: Path, below: str, kind: str) -> None:
    files = hapt_files() if kind == "hapt" else uci_har_files()
    written = write_folder(tmp_path / "given" / below, files)
    source = find_source(str(tmp_path / "given"), {}, tmp_path, tmp_path)
    assert (source.kind, source.path) == (kind, written)


def test_a_zip_under_any_name_and_a_lone_npz_are_found_in_a_folder(tmp_path: Path) -> None:
    packed = write_zip(tmp_path / "a" / "human+activity+recognition.zip", uci_har_files(), prefix="UCI HAR Dataset/")
    assert find_source(str(tmp_path / "a"), {}, tmp_path, tmp_path).path == packed
    (tmp_path / "b").mkdir()
    np.savez(tmp_path / "b" / "mine.npz", x=np.zeros(1))
    assert find_source(str(tmp_path / "b"), {}, tmp_path, tmp_path).path == tmp_path / "b" / "mine.npz"


@pytest.mark.parametrize("origin", ["given", "environment"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere.zip", "no such file or folder"),
        ("empty", "holds no recordings of a known kind"),
        ("notes.txt", "not a recording of a known kind"),
        ("photos.zip", "not a recording of a known kind"),
        ("broken.zip", "not a complete zip archive"),
    ],
)
def test_what_the_user_names_must_be_usable(tmp_path: Path, name: str, expected: str, origin: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("1 2 3")
    write_zip(tmp_path / "photos.zip", {"beach.jpg": b"x"})
    (tmp_path / "broken.zip").write_bytes(write_zip(tmp_path / "whole.zip", hapt_files()).read_bytes()[:1000])
    path = str(tmp_path / name)
    given, environ = (path, {}) if origin == "given" else (None, {"PSCLUSTER_DATA": path})
    with pytest.raises(DataError) as caught:
        find_source(given, environ, tmp_path, tmp_path)
    assert path in str(caught.value)
    assert expected in str(caught.value)


def test_a_damaged_set_in_a_shared_place_is_not_silently_replaced_by_synthetic_ones(
    project: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "work" / "shared" / "data"
    path = write_zip(shared / "HAPT Data Set.zip", hapt_files())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cut short, fetch it again"):
        find_source(None, {}, project, tmp_path / "none")


@pytest.mark.parametrize(("source", "holds"), [("synthetic", True), ("-nothing.npz", False)])
def test_a_look_from_outside_is_one_json_object(tmp_path: Path, source: str, holds: bool) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "cluster.data.look", "--", source],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(asked.stdout)
    assert answer["holds"] is holds
    assert source in answer["line"]
