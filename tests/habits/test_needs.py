"""All skips go through one place, and a run ends with one line about them."""

import re
from pathlib import Path

import pytest

from tests.habits import needs
from tests.habits.leaks import PROJECT
from tools import debian_tools

SKIPPING = re.compile(
    r"pytest\.skip\(|mark\.skip|importorskip|unittest\.skip|shutil\.which\(|SkipTest"
)
MAY = {
    "tests/habits/needs.py": "the one place",
    "tests/habits/test_needs.py": "this contract",
    "tests/lab/requirements.py": "lists what a lab needs; tests/lab/conftest.py asks `needs`",
}


@pytest.mark.sources
def test_no_test_looks_for_a_tool_or_skips_by_itself() -> None:
    found = {
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / "tests").rglob("*.py")
        if SKIPPING.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(MAY), "tests/habits/needs.py skips, and finds tools"


def test_a_tool_is_the_machine_s_own_or_the_unpacked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needs.tool("sh").name == "sh"
    monkeypatch.setattr(debian_tools, "find", lambda _: None)
    for name, said in (
        ("sshd", "needs sshd: `make test-tools` fetches it"),
        ("sh", "needs sh, which every Debian has"),
    ):
        with pytest.raises(pytest.skip.Exception, match=re.escape(said)):
            needs.tool(name)
