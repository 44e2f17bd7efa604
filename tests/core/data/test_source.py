"""The search order, and the one line that says which recordings and why."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.data import Source, find_source, prepare
from tests.core.data.desk import Desk, refused
from tests.core.data.makers import hapt_files, uci_har_files, write_zip
from tests.ran import python
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    return folder


def test_each_place_is_asked_before_the_next(project: Path, desk: Desk) -> None:
    def found(given: str | None = None, **environ: str) -> Source:
        source = find_source(given, environ, project, desk.folder / "user-cache")
        assert "\n" not in source.why
        return source

    assert found().kind == "synthetic"
    assert "none in" in found().why
    cached = desk.write("user-cache/UCI HAR Dataset.zip", uci_har_files())
    assert (found().kind, found().path) == ("uci-har", cached)
    shared = desk.write("work/shared/data/hapt/HAPT Data Set.zip", hapt_files())
    assert (found().kind, found().path) == ("hapt", shared)
    assert "found in" in found().why
    own = desk.write("own.npz", {"x": np.zeros(1)})
    environ = {"PSCLUSTER_DATA": str(own)}
    assert found(**environ) == Source("npz", own, f"{own} ($PSCLUSTER_DATA)")
    assert found(str(cached), **environ) == Source("uci-har", cached, f"{cached} (as asked)")
    assert found("synthetic", **environ).kind == "synthetic"
    assert found(PSCLUSTER_DATA="synthetic").why == "synthetic recordings ($PSCLUSTER_DATA)"
    assert found(PSCLUSTER_DATA="").path == shared


@pytest.mark.parametrize(
    ("below", "content", "kind"),
    [
        ("", hapt_files(), "hapt"),
        ("hapt/HAPT Data Set", hapt_files(), "hapt"),
        ("downloads/UCI HAR Dataset", uci_har_files(), "uci-har"),
        ("mine.npz", {"x": np.zeros(1)}, "npz"),
    ],
)
def test_a_folder_may_be_the_set_or_hold_it(
    desk: Desk, below: str, content: Any, kind: str
) -> None:
    written = desk.write(f"given/{below}", content)
    source = desk.source("given")
    assert (source.kind, source.path) == (kind, written)


def test_a_zip_under_any_name_is_found_in_a_folder(desk: Desk) -> None:
    path = desk.folder / "a" / "human+activity+recognition.zip"
    packed = write_zip(path, uci_har_files(), prefix="UCI HAR Dataset/")
    assert desk.source("a").path == packed


@pytest.mark.parametrize("environ", [False, True])
@pytest.mark.parametrize(("name", "content", "said"), table("core/data/tables", "unusable"))
def test_what_the_user_names_must_be_usable(
    desk: Desk, name: str, content: Any, said: str, environ: bool
) -> None:
    (desk.folder / "empty").mkdir()
    path = desk.folder / name
    if content is not None:
        desk.write(name, content)
    given = None if environ else str(path)
    with refused(f"{path}:  ... {said}"):
        find_source(given, {"PSCLUSTER_DATA": str(path)}, desk.folder, desk.folder)


def test_a_damaged_set_in_a_shared_place_is_not_silently_replaced_by_synthetic_ones(
    project: Path, desk: Desk
) -> None:
    path = desk.write("work/shared/data/HAPT Data Set.zip", hapt_files())
    path.write_bytes(path.read_bytes()[:-100])
    with refused("cut short, fetch it again"):
        find_source(None, {}, project, desk.folder / "none")


def test_a_source_that_is_another_meanwhile_is_refused(tmp_path: Path) -> None:
    with refused("no longer holds recordings of kind uci-har"):
        prepare(Source("uci-har", tmp_path, ""), cache=tmp_path / "cache")


@pytest.mark.parametrize(("source", "holds"), [("synthetic", True), ("-nothing.npz", False)])
def test_a_look_from_outside_is_one_json_object(source: str, holds: bool) -> None:
    answer = json.loads(python("-m", "core.data.look", "--", source))
    assert answer["holds"] is holds
    assert source in answer["line"]
