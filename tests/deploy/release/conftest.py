"""A wheelhouse for this machine's own Python, made once."""

from pathlib import Path

import pytest

from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from tests.deploy.release.wheels import MACHINE, PYTHON, pure_wheel, requirements, uv_wheel


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip takes wheels from instead of an index."""
    folder = tmp_path_factory.mktemp("index")
    pure_wheel(folder, "alpha", text="a")
    pure_wheel(folder, "beta", text="b")
    uv_wheel(folder)
    return folder


@pytest.fixture(scope="session")
def asked(index: Path) -> str:
    """The list of everything in the index."""
    return requirements(*sorted(index.glob("*.whl")))


@pytest.fixture(scope="session")
def wheelhouse(index: Path, asked: str, tmp_path_factory: pytest.TempPathFactory) -> Wheelhouse:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(index))
        return make_wheelhouse(asked, PYTHON, MACHINE, cache=tmp_path_factory.mktemp("wheels"), say=lambda line: None)
