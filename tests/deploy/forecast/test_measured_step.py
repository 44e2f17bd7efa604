"""What `fab app check` says of the process that runs the steps."""

import sys
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from deploy.forecast import measurements as check


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").touch()
    return tmp_path


def played(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    program = (
        "import os, sys\nsys.stderr.buffer.write(b'\\xff\\nthe"
        f" reason\\n')\nsys.stderr.flush()\n{source}"
    )
    monkeypatch.setattr(check, "module_command", lambda *words: [sys.executable, "-c", program])


def test_the_last_line_is_the_reason_whatever_bytes_the_app_wrote(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, "sys.exit(2)")
    with pytest.raises(UsageError, match=r"^the reason$"):
        check.measured_step(app, (), app, lambda requirements: "")


def test_a_signal_is_named_with_the_last_line(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, "os.kill(os.getpid(), 11)")
    with pytest.raises(
        ClusterError, match=r"ended with SIGSEGV: .*shows it; its last line: the reason$"
    ):
        check.measured_step(app, (), app, lambda requirements: "")


def test_an_answer_that_is_no_step_is_no_reason_of_the_app(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, "print([])")
    with pytest.raises(ClusterError) as refused:
        check.measured_step(app, (), app, lambda requirements: "")
    assert "the reason" not in str(refused.value)
