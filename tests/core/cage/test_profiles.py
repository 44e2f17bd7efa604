"""A profile names places of its file alone, and a process fills each slot and no other."""

from pathlib import Path
from typing import Any

import pytest

from core.cage import profiles
from core.cage.calls import CallRights
from core.cage.landlock import Rights
from core.cage.profiles import FILE, profile

KINDS = ("role", "role_gpu", "role_tpu", "service", "model", "export", "job")


def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Have a file in which one line is another."""
    text = FILE.read_text()
    assert before in text
    (tmp_path / "profiles.toml").write_text(text.replace(before, after))
    monkeypatch.setattr(profiles, "FILE", tmp_path / "profiles.toml")
    monkeypatch.setattr(profiles, "_tables", profiles._tables.__wrapped__)
    monkeypatch.setattr(profiles, "_groups", profiles._groups.__wrapped__)


def kept(name: str) -> tuple[Rights, CallRights]:
    """What a process keeps that fills nothing."""
    return profile(name).rights(), profile(name).calls


@pytest.mark.parametrize("name", KINDS)
def test_every_profile_has_rights_once_its_slots_are_filled(name: str) -> None:
    kept = profile(name)
    rights = kept.rights(**dict.fromkeys(kept.slots, ()))
    assert rights.read
    assert all(Path(path).exists() for path in (*rights.read, *rights.write, *rights.devices))
    assert kept.calls.free == (name == "job")
    assert (rights.bind is None) == (rights.connect is None) == (name == "job")
    assert bool(rights.write) == (name == "job")


def test_paths_that_are_missing_are_left_out_and_ports_are_those_of_the_slots(
    tmp_path: Path,
) -> None:
    own = tmp_path / "[own]"
    own.mkdir()
    prepared = (own, tmp_path / "missing")
    rights = profile("role").rights(prepared=prepared, ports=(7, 8), reach=(9,))
    assert [path for path in rights.read if str(tmp_path) in str(path)] == [str(own)]
    assert (rights.bind, rights.connect) == ((0, 7, 8), (9,))
    assert profile("role").rights(prepared=(), ports=(), reach=None).connect is None


@pytest.mark.parametrize("slots", [{}, {"made": (), "recordings": (), "sistem": ()}])
def test_a_slot_that_is_not_filled_or_unknown_is_refused(slots: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected .'made', 'recordings'., got"):
        profile("export").rights(**slots)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('read = ["runtime"]', 'read = ["sistem"]', ValueError),
        ('read = ["runtime"]', 'reads = ["runtime"]', TypeError),
        ('read = ["runtime"]', 'read = ["runtime"]\nsockets = ["bluetooth"]', KeyError),
    ],
)
def test_a_profile_that_names_an_unknown_thing_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    problem: type[Exception],
) -> None:
    written(tmp_path, monkeypatch, before, after)
    with pytest.raises(problem, match=r"sistem|reads|bluetooth"):
        kept("model")
