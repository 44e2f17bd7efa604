"""What dashboards show of known series, as promtool evaluates their expressions (shown.yaml)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.inventory import load
from deploy.monitor.files import RECORDING_RULES, dashboards, prometheus_files, write
from tests.deploy.monitor.expressions import filled_in, panels_of
from tests.habits import needs
from tests.ran import ran
from tests.tables import table
from tools.check_rules import INVENTORY

CASES = table("deploy/monitor/shown")


def expression_of(name: str) -> str:
    """That of an annotation, or of a column of the table of nodes."""
    overview: dict[str, Any] = json.loads(dashboards()["pscluster-overview.json"])
    for annotation in overview["annotations"]["list"]:
        if annotation["name"] == name:
            return str(annotation["expr"])
    (table,) = [panel for panel in panels_of(overview) if panel["type"] == "table"]
    columns = table["transformations"][1]["options"]["renameByName"]
    (target,) = [one for one in table["targets"] if columns.get(f"Value #{one['refId']}") == name]
    return str(target["expr"])


def promtool_test(case: dict[str, Any]) -> dict[str, Any]:
    expression = filled_in(expression_of(case["of"]), "c", ".*", "65s")
    asked = []
    for at, shown in case["shown"].items():
        samples = [{"labels": labels, "value": value} for labels, value in shown.items()]
        asked.append({"expr": expression, "eval_time": at, "exp_samples": samples})
    series = [{"series": name, "values": values} for name, values in case["series"].items()]
    return {"interval": "5s", "input_series": series, "promql_expr_test": asked}


@pytest.mark.long
def test_what_is_shown_of_known_series(tmp_path: Path) -> None:
    write(tmp_path, prometheus_files(load(INVENTORY, check_interfaces=False)))
    tests = {
        "rule_files": [RECORDING_RULES],
        "evaluation_interval": "5s",
        "tests": [promtool_test(case) for case in CASES],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    ran(needs.tool("promtool"), "test", "rules", "tests.yml", folder=tmp_path)
