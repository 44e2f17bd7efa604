import sys

import pytest

from pscluster import commands


def test_a_bar_is_reported_as_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library draws its bar over itself: those lines end with a carriage return."""
    monkeypatch.setattr(commands, "module_command", lambda _, *words: (sys.executable, *words))
    program = "import sys; sys.stderr.write('10 %\\r20 %\\r\\nend \\udcff\\n'); print('{}')"
    found: list[str] = []
    assert commands.run(("-c", program), found.append) == {}
    assert found == ["10 %", "20 %", r"end \udcff"]
