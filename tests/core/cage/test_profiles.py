"""A profile names places of its file alone, and a process fills each slot and no other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from core.cage import profiles
from core.cage.profiles import FILE, calls_of, profile, rights_of


def test_paths_that_are_missing_are_left_out_and_ports_are_those_of_the_slots(
    tmp_path: Path,
) -> None:
    own = tmp_path / "[own]"
    own.mkdir()
    prepared = (own, tmp_path / "missing")
    rights = rights_of("role", prepared=prepared, ports=(7, 8), reach=(9,))
    assert [path for path in rights.read if str(tmp_path) in str(path)] == [str(own)]
    assert (rights.write, rights.bind, rights.connect) == ((), (0, 7, 8), (9,))
    assert rights_of("role_gpu", prepared=(), ports=(), reach=None).connect is None


def test_only_the_cage_of_a_job_is_open() -> None:
    for name in ("role", "role_gpu", "role_tpu", "service", "model", "export"):
        assert {"bind", "connect", "packages"} <= profile(name).keys()
        assert not calls_of(name).free
    assert calls_of("job").free


@pytest.mark.parametrize("slots", [("made",), ("made", "recordings", "sistem")])
def test_a_slot_that_is_not_filled_or_unknown_is_refused(slots: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected paths or ports for .'made', 'recordings'.,"):
        rights_of("export", **dict.fromkeys(slots, ()))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('read = ["sistem"]', rights_of),
        ("reads = []", rights_of),
        ('sockets = ["bluetooth"]', calls_of),
    ],
)
def test_a_profile_that_names_an_unknown_thing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, part: Callable[[str], object]
) -> None:
    monkeypatch.setattr(profiles, "FILE", tmp_path / "profiles.toml")
    monkeypatch.setattr(profiles, "_tables", profiles._tables.__wrapped__)
    (tmp_path / "profiles.toml").write_text(f"{FILE.read_text()}\n[other]\n{line}\n")
    with pytest.raises((ValueError, KeyError), match=r"sistem|of read, write.*reads|bluetooth"):
        part("other")
