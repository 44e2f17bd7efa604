"""What cannot be done is one line, and nothing begins (`refusals.yaml`)."""

from pathlib import Path

import pytest

from deploy.commands import service
from tests.deploy.typed import Fab, Processes
from tests.tables import table

REFUSALS: dict[str, str] = table("deploy/commands/refusals")


@pytest.mark.parametrize(("line", "words"), REFUSALS.items())
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path,
    fab: Fab,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    words: str,
) -> None:
    monkeypatch.setattr(service, "_in_foreground", lambda _: pytest.fail("it was started"))
    fab(line).refuses(words)
    assert processes.commands == []
    assert list(tmp_path.iterdir()) == []
