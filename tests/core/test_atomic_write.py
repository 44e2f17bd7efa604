"""A file is on the disk before its name is, and the name before the call returns."""

import os
from pathlib import Path
from typing import Any

import pytest

from core.ground import files
from core.ground.files import atomic_write, folder_beside, whole_folder
from core.ground.locks import locked_folder


def test_the_content_is_synced_then_named_then_the_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str]] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(("sync", "folder" if path == tmp_path else path.read_text()))
        real_sync(descriptor)

    def observed(name: str) -> None:
        real = getattr(os, name)

        def move(source: Any, target: Any, **words: Any) -> None:
            steps.append(("name", Path(target).name))
            real(source, target, **words)

        monkeypatch.setattr(os, name, move)

    monkeypatch.setattr(os, "fsync", sync)
    observed("replace")
    observed("rename")
    atomic_write(tmp_path / "result.json", b"{}")
    assert steps == [("sync", "{}"), ("name", "result.json"), ("sync", "folder")]


def fill(path: Path, content: str, end: OSError | None = None) -> None:
    with whole_folder(path) as partial:
        (partial / "log").write_text(content)
        if end is not None:
            raise end


def held(folder: Path) -> dict[str, str]:
    """Everything below the folder, hidden or not."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_folder_takes_the_place_of_another_whole_or_not_at_all(tmp_path: Path) -> None:
    run = tmp_path / "run[1]"
    fill(run, "first")
    with pytest.raises(OSError, match="full"):
        fill(run, "second", OSError(28, "full"))
    assert held(tmp_path) == {"run[1]/log": "first"}
    fill(run, "second")
    assert held(tmp_path) == {"run[1]/log": "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["run[1]"]


@pytest.mark.parametrize("failing", [{2}, {2, 3}])
def test_what_was_there_comes_back_when_a_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    run = tmp_path / "run"
    fill(run, "first")
    rename = Path.rename
    count = iter(range(1, 9))

    def full(path: Path, target: Path) -> Path:
        if next(count) in failing:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            fill(run, "second")
    assert [*held(tmp_path).values()] == ["first"]
    with pytest.raises(OSError, match="later"):
        fill(run, "third", OSError(5, "later"))
    assert held(tmp_path) == {"run/log": "first"}, "the next call brought it back"


def test_what_killed_processes_left_is_no_obstacle_and_goes(tmp_path: Path) -> None:
    """Whatever their ids: that of a living one was given again, or is of another namespace."""
    run = tmp_path / "run"
    node = os.uname().nodename
    living = f".run.{node}@99999999-b.partial"
    for name in (
        living,
        f".run.{node}@99999999-a.partial",
        f".run.{node}@1-a.partial",
        ".run.1.old",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stale").touch()
    run.mkdir()
    with locked_folder(tmp_path / living):
        fill(run, "first")
        assert held(tmp_path) == {"run/log": "first", f"{living}/stale": ""}


def test_a_folder_stays_while_its_maker_lives_and_where_another_account_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / f".a.{os.uname().nodename}@99999999-a.partial"
    leftover.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: leftover.stat().st_uid + 1)
    with folder_beside(tmp_path / "a") as folder:
        assert leftover.exists()
        monkeypatch.undo()
        with folder_beside(tmp_path / "a") as other:
            assert folder.exists()
            assert other.exists()
            assert not leftover.exists()


def test_a_folder_that_went_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: Path) -> Any:
        monkeypatch.undo()
        path.rmdir()
        return locked_folder(path)

    monkeypatch.setattr(files, "locked_folder", late)
    with folder_beside(tmp_path / "a") as folder:
        assert folder.exists()
