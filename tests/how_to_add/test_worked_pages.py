"""The examples of docs/how-to-add work: each is applied to a copy and checked there."""

from pathlib import Path

import pytest

from deploy.common.project import ROOT
from tests.habits import needs
from tests.how_to_add.worked_page import Change, changes, commands, copy_of_the_project, run

PAGES = ROOT / "docs/how-to-add"
SHOWN = """
from dataclasses import replace
from pathlib import Path
from cluster.pages.facts import ended_root, live_tiles
from cluster.pages.files import StoredRun
from cluster.pages.rows import tiles_of
from deploy.monitor.files import dashboards
from tests.cluster.pages.example import training

figures = {"validation": {"precision_macro": 0.125}, "test": {"precision_macro": 0.25}}
view = replace(training(), figures=figures)
page = {tile.name: tile.value for tile in live_tiles(view)}
ended = tiles_of("ended", ended_root(StoredRun(Path("x"), view)))
report = {tile.name: tile.value for tile in ended}
assert page["Macro precision"] == "12.5 %", page
assert report["Macro precision"].startswith("0.25"), report
assert "pscluster_train_precision_macro_ratio" in dashboards()["pscluster-training.json"]
"""

pytestmark = pytest.mark.long


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
        "deploy/monitor/rules/pscluster-recording.yml",
        "deploy/monitor/rules/pscluster-alerts.yml",
        "tests/deploy/monitor/rule_cases.yaml",
        "docs/runbook.md",
    ]


def test_a_metric_with_its_place_on_page_report_and_dashboard(tmp_path: Path) -> None:
    works("metric.md", tmp_path)
    assert (
        "- `pscluster_train_precision_macro_ratio` (gauge): "
        in (tmp_path / "docs/metrics.md").read_text()
    )
    (tmp_path / "shown.py").write_text(SHOWN)
    ended = run(tmp_path, "-m shown")
    assert ended.returncode == 0, ended.stderr


def test_a_deployment_step(tmp_path: Path) -> None:
    made = works("deployment-step.md", tmp_path)
    assert [change.path for change in made if not change.before] == [
        "deploy/converge/swappiness.py",
        "tests/deploy/converge/test_swappiness.py",
    ]
