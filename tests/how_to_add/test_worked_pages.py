"""The examples of docs/how-to-add do what the pages say: each is applied to a copy of the project and checked there."""

from pathlib import Path

import pytest

from deploy.common.project import ROOT
from tests.habits import needs
from tests.how_to_add.worked_page import Change, changes, commands, copy_of_the_project, run

PAGES = ROOT / "docs/how-to-add"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def works(name: str, project: Path, *programs: Path) -> list[Change]:
    """Apply the page's changes and run its commands; the changes."""
    page = (PAGES / name).read_text(encoding="utf-8")
    copy_of_the_project(project)
    made = list(changes(page))
    assert made
    for change in made:
        change.apply(project)
    told = commands(page)
    assert told
    for words in told:
        ended = run(project, words, programs)
        assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return made


def test_an_alert(tmp_path: Path) -> None:
    made = works("alert.md", tmp_path, needs.tool("promtool"))
    assert [change.path for change in made] == [
        "deploy/monitor/recordings.py", "deploy/monitor/alerts.py", "tests/monitor/rule_cases.yaml", "docs/runbook.md"
    ]  # fmt: skip
