"""A wheelhouse is downloaded once, goes on where it was cut off, and says in one line what it cannot get."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from deploy.common.file_lock import FileLock
from deploy.release.hashes import SUMS, file_sha256, parse_sums
from deploy.release.requirements import environment_key
from deploy.release.wheelhouse import COMPLETE, TEMPORARY, Wheelhouse, make_wheelhouse, open_wheelhouse
from tests.deploy.release.wheels import DEADLINE_SECONDS, MACHINE, PYTHON, pure_wheel, requirements


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds wheels: nothing else is asked."""
    folder = tmp_path / "source"
    pure_wheel(folder, "alpha")
    pure_wheel(folder, "beta")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def make(asked: str, cache: Path, said: list[str] | None = None) -> Wheelhouse:
    return make_wheelhouse(asked, PYTHON, MACHINE, cache=cache, say=(said if said is not None else []).append)


def listed(source: Path) -> str:
    return requirements(*sorted(source.glob("*.whl")))


def test_it_holds_what_was_asked_for_with_hashes_and_sizes(source: Path, tmp_path: Path) -> None:
    asked = listed(source)
    made = make(asked, tmp_path / "cache")
    assert made.key == environment_key(asked, PYTHON, MACHINE) == made.folder.name
    assert {path.name for path in made.folder.iterdir()} == {*made.files, COMPLETE}
    assert parse_sums(made.sums()) == {name: file_sha256(made.folder / name) for name in made.files if name != SUMS}
    assert made.bytes == sum((made.folder / name).stat().st_size for name in made.files)
    blocks = 4  # of each wheel: a module, its bytecode, two files about it; the third is empty
    assert made.installed_bytes == 2 * blocks * 4096
    assert made == open_wheelhouse(made.key, tmp_path / "cache")


def test_a_complete_one_asks_for_nothing(source: Path, tmp_path: Path) -> None:
    asked, said = listed(source), list[str]()
    made = make(asked, tmp_path / "cache")
    shutil.rmtree(source)
    assert make(asked, tmp_path / "cache", said) == made
    assert said == []


def test_a_wheel_for_older_pythons_alone_comes_too(source: Path, tmp_path: Path) -> None:
    """The lock has chosen it: uv ignores that bound, as backports-strenum, which LiteRT needs, has one."""
    pure_wheel(source, "gamma", python="<3.11")
    assert "gamma-1.0-py3-none-any.whl" in make(listed(source), tmp_path / "cache").files


def test_a_missing_wheel_is_one_line_and_the_next_attempt_goes_on(source: Path, tmp_path: Path) -> None:
    asked = listed(source)
    kept = (source / "beta-1.0-py3-none-any.whl").rename(tmp_path / "beta-1.0-py3-none-any.whl")
    with pytest.raises(ClusterError, match=r"CPython .* are incomplete: .*beta==1\.0") as caught:
        make(asked, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert open_wheelhouse(environment_key(asked, PYTHON, MACHINE), tmp_path / "cache") is None
    kept.rename(source / kept.name)
    assert len(make(asked, tmp_path / "cache").files) == 4


def test_what_was_cut_off_is_made_good(source: Path, tmp_path: Path) -> None:
    asked = listed(source)
    folder = tmp_path / "cache" / environment_key(asked, PYTHON, MACHINE)
    (folder / f"{TEMPORARY}1").mkdir(parents=True)
    (folder / "alpha-1.0-py3-none-any.whl").write_bytes(b"half")
    (folder / "older-1.0-py3-none-any.whl").write_bytes(b"of nobody")
    made = make(asked, tmp_path / "cache")
    assert {path.name for path in made.folder.iterdir()} == {*made.files, COMPLETE}


def test_one_that_lacks_only_its_mark_needs_no_network(source: Path, tmp_path: Path) -> None:
    asked = listed(source)
    made = make(asked, tmp_path / "cache")
    (made.folder / COMPLETE).unlink()
    shutil.rmtree(source)
    assert make(asked, tmp_path / "cache") == made


def test_one_with_a_file_of_another_size_is_made_again(source: Path, tmp_path: Path) -> None:
    asked = listed(source)
    made = make(asked, tmp_path / "cache")
    (made.folder / "alpha-1.0-py3-none-any.whl").write_bytes(b"half")
    assert open_wheelhouse(made.key, tmp_path / "cache") is None
    assert make(asked, tmp_path / "cache") == made


def test_another_list_takes_what_is_there_already(source: Path, tmp_path: Path) -> None:
    first = make(listed(source), tmp_path / "cache")
    pure_wheel(source, "gamma")
    second = make(listed(source), tmp_path / "cache")
    assert second.key != first.key
    name = "alpha-1.0-py3-none-any.whl"
    assert (second.folder / name).samefile(first.folder / name)


def test_no_network_is_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = listed(source)
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the port "discard": nobody answers
    with pytest.raises(ClusterError, match="is the network there") as caught:
        make(asked, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_second_one_waits_for_the_first(source: Path, tmp_path: Path) -> None:
    asked, said, made = listed(source), list[str](), list[Wheelhouse]()
    cache = tmp_path / "cache"
    second = threading.Thread(target=lambda: made.append(make(asked, cache, said)))
    with FileLock(cache / f"{environment_key(asked, PYTHON, MACHINE)}.lock"):
        second.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not said:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "waiting for process" in said[0]
        assert made == []
    second.join(DEADLINE_SECONDS)
    assert len(made) == 1
