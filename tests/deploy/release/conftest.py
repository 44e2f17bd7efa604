"""Wheelhouses for this machine's own Python, without an index on the network."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from tests.deploy.release.wheels import (
    MACHINE,
    PYTHON,
    only_from,
    pure_wheel,
    requirements,
    uv_wheel,
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that uv and pip take wheels from instead of an index."""
    (tmp_path / "index").mkdir()
    only_from(tmp_path / "index", monkeypatch)
    return tmp_path / "index"


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Wheelhouse:
    """Two modules and the real uv, made once."""
    folder = tmp_path_factory.mktemp("index")
    wheels = [pure_wheel(folder, name, text=name[0]) for name in ("alpha", "beta")]
    asked = requirements(*wheels, uv_wheel(folder))
    with pytest.MonkeyPatch.context() as patch:
        only_from(folder, patch)
        cache = tmp_path_factory.mktemp("wheels")
        return make_wheelhouse(asked, PYTHON, MACHINE, cache=cache, say=lambda line: None)


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[Path]:
    """Six complete environments by age, `a` the newest; a process holds `e`."""
    folder = tmp_path / "environments"
    for age, name in enumerate("abcdef"):
        mark = folder / (name * 16) / ".complete"
        mark.parent.mkdir(parents=True)
        mark.touch()
        os.utime(mark, (1000 - age, 1000 - age))
    with (folder / ("e" * 16) / ".complete").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield folder
