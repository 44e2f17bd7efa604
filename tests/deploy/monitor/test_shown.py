"""What the dashboards show of series that are known, as promtool evaluates their expressions."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.inventory import load
from deploy.monitor.files import RECORDING_RULES, dashboards, prometheus_files, write
from tests.deploy.monitor.expressions import filled_in, panels_of
from tests.habits import needs
from tests.hang import HANG_SECONDS
from tools.check_rules import INVENTORY

pytestmark = pytest.mark.long

OVERVIEW: dict[str, Any] = json.loads(dashboards()["pscluster-overview.json"])
SECONDS_APART = 5
NODE = 'job="pscluster", cluster="c", node="rpi01"'
Shown = Mapping[str, float]
"""Values by the labels of their series."""


def column(name: str) -> str:
    """Expression of a column of the table of nodes."""
    (table,) = [panel for panel in panels_of(OVERVIEW) if panel["type"] == "table"]
    renamed = table["transformations"][1]["options"]["renameByName"]
    (letter,) = [key.removeprefix("Value #") for key, value in renamed.items() if value == name]
    (expression,) = [target["expr"] for target in table["targets"] if target["refId"] == letter]
    return str(expression)


def marked(name: str) -> str:
    """Expression of an annotation."""
    (expression,) = [one["expr"] for one in OVERVIEW["annotations"]["list"] if one["name"] == name]
    return str(expression)


def holds(
    folder: Path, expression: str, series: Mapping[str, str], shown: Mapping[int, Shown]
) -> None:
    """At each of these times, in seconds, the expression gives what is said; AssertionError with
    promtool's words."""
    write(folder, prometheus_files(load(INVENTORY, check_interfaces=False)))
    asked = []
    for at, expected in shown.items():
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        filled = filled_in(expression, "c", ".*", "65s")
        asked.append({"expr": filled, "eval_time": f"{at}s", "exp_samples": samples})
    test = {
        "interval": f"{SECONDS_APART}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
    tests = {
        "rule_files": [RECORDING_RULES],
        "evaluation_interval": f"{SECONDS_APART}s",
        "tests": [test],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run(
        [needs.tool("promtool"), "test", "rules", "tests.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_condition_of_a_node_counts_once_however_many_processes_tell_it(tmp_path: Path) -> None:
    series = {
        f'pscluster_node_throttled{{{NODE}, process="{role}:0", role="{role}", task="0",'
        f' condition="{condition}", since="now"}}': "1x4"
        for role in ("ps", "worker", "coordinator")
        for condition in ("throttled", "under_voltage")
    }
    holds(tmp_path, column("Throttled now"), series, {10: {'{node="rpi01"}': 2}})


def test_as_many_are_ready_as_are_up_while_a_job_runs(tmp_path: Path) -> None:
    series = {
        f'{metric}{{{NODE}, process="{process}"}}': "1x4"
        for process in ("ps:0", "worker:0", "coordinator:0")
        for metric in ("up", "pscluster_ready")
    }
    for name in ("Processes up", "Ready"):
        holds(tmp_path, column(name), series, {10: {'{node="rpi01"}': 2}})


def test_a_start_is_marked_whenever_it_comes_and_a_lost_look_is_none(tmp_path: Path) -> None:
    """Grafana looks once a minute.

    A look of Prometheus's is 5 s; `stale` is one that was not answered.
    """

    def story(values: str, marks: Mapping[int, float]) -> None:
        series = {
            f'pscluster_process_start_time_seconds{{{NODE}, process="ps:0", role="ps"}}': values
        }
        shown = {
            at: {'{cluster="c", node="rpi01", process="ps:0"}': marks[at]} if at in marks else {}
            for at in range(120, max(marks, default=0) + 240, 60)
        }
        holds(tmp_path, marked("Starts"), series, shown)

    story("10x22 stale _ 125x40", {180: 125})
    story("10x24 120x5 150x40", {180: 150})
    story("10x22 stale stale 10x40", {})
    story("10x40 stale _x739 3900x40", {3960: 3900})


def test_the_first_checkpoint_of_a_coordinator_is_marked_too(tmp_path: Path) -> None:
    last = "pscluster_train_checkpoint_last_success_timestamp_seconds"
    series = {f'{last}{{{NODE}, process="coordinator:0"}}': ("_x36 178x40")}
    holds(tmp_path, marked("Checkpoints"), series, {120: {}, 180: {'{cluster="c"}': 178}, 300: {}})
