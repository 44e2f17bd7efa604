"""What the tests of the command share: a model, and the command in this process."""

import subprocess
from pathlib import Path

import pytest

from recognise.command import main
from tests.recognise.command import Done, Here
from tests.recognise.exports import export


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return export(tmp_path / "export")


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """The command in this process."""

    def run(*words: object) -> Done:
        code = main([str(word) for word in words])
        told = capsys.readouterr()
        return subprocess.CompletedProcess([*map(str, words)], code, told.out, told.err)

    return run
