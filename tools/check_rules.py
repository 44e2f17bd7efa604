"""Promtool over what `fab deploy monitor` writes.

Its configuration, its rules, and cases for every alert.

`python -m tools.check_rules` is `make rules`. A case of tests/deploy/monitor/rule_cases.yaml has
series under which an alert fires, and others under which it stays silent; this program makes
promtool's test files of it, which repeat every text of an alert.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from core.ground.errors import ClusterError
from core.inventory import load
from deploy.monitor.files import ALERT_RULES, RECORDING_RULES, prometheus_files, rule_group, write
from tools.prometheus_tools import tool

PROJECT = Path(__file__).resolve().parents[1]
CASES = PROJECT / "tests/deploy/monitor/rule_cases.yaml"
INVENTORY = PROJECT / "inventory.yaml"
SAMPLES_APART = "30s"
Alert = Mapping[str, Any]
"""An alerting rule in Prometheus's own format."""


def read_cases() -> list[dict[str, Any]]:
    """The cases of the file."""
    read: list[dict[str, Any]] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    return read


def promtool_tests(cases: Sequence[Mapping[str, Any]], known: Sequence[Alert]) -> dict[str, Any]:
    """A test file for promtool. Raises KeyError for a case of an unknown alert."""
    by_name = {alert["alert"]: alert for alert in known}
    groups = []
    for case in cases:
        for kind in ("fires", "silent"):
            groups.append(_group(by_name[case["alert"]], kind, case[kind]))
    return {
        "rule_files": [RECORDING_RULES, ALERT_RULES],
        "evaluation_interval": SAMPLES_APART,
        # Otherwise in the order of a Go map, another one in each run: now and then an alert read
        # the value before.
        "group_eval_order": [rule_group(name)["name"] for name in (RECORDING_RULES, ALERT_RULES)],
        "tests": groups,
    }


def _group(alert: Alert, kind: str, case: Mapping[str, Any]) -> dict[str, Any]:
    expected = [
        {
            "exp_labels": {**alert["labels"], **labels},
            "exp_annotations": _texts(alert, labels, case),
        }
        for labels in case.get("alerts", ())
    ]
    if (kind == "fires") != bool(expected):
        raise ValueError(
            f"{alert['alert']} {kind}: expected {'alerts' if kind == 'fires' else 'none'}"
        )
    return {
        "name": f"{alert['alert']} {kind}",
        "interval": SAMPLES_APART,
        "input_series": [
            {"series": series, "values": values} for series, values in case["series"].items()
        ],
        "alert_rule_test": [
            {"eval_time": case["at"], "alertname": alert["alert"], "exp_alerts": expected}
        ],
    }


def _texts(alert: Alert, labels: Mapping[str, str], case: Mapping[str, Any]) -> dict[str, str]:
    def filled(text: str) -> str:
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        return re.sub(r"\{\{ \$value[^}]*\}\}", lambda _: str(case["value"]), text)

    return {name: filled(text) for name, text in alert["annotations"].items()}


def run(promtool: Path, folder: Path, *arguments: str) -> bool:
    """Whether promtool succeeds; if not, its output goes to stderr."""
    done = subprocess.run(
        [str(promtool), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def main() -> int:
    """Run promtool over all files in a temporary folder."""
    inventory = load(INVENTORY, check_interfaces=False)
    try:
        promtool = tool("promtool")
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return int(problem.exit_code)
    with tempfile.TemporaryDirectory(prefix="pscluster-rules-") as temporary:
        folder = Path(temporary)
        write(folder, prometheus_files(inventory))
        (folder / "tests.yml").write_text(
            yaml.safe_dump(promtool_tests(read_cases(), rule_group(ALERT_RULES)["rules"])),
            encoding="utf-8",
        )
        well = [
            run(promtool, folder, "check", "config", "prometheus.yml"),
            run(promtool, folder, "check", "rules", RECORDING_RULES, ALERT_RULES),
            run(promtool, folder, "test", "rules", "tests.yml"),
        ]
    if all(well):
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
