"""A rule of Prometheus, and the file of rules. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

RUNBOOK = "docs/runbook.md"

Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Recording:
    """A recorded series, named `LEVEL:METRIC:OPERATION` as Prometheus's guide advises."""

    name: str
    expression: str

    def to_yaml(self) -> dict[str, Any]:
        """The rule as Prometheus reads it."""
        return {"record": self.name, "expr": " ".join(self.expression.split())}


@dataclass(frozen=True)
class Alert:
    """A recorded series compared with a threshold.

    Only a recorded series: it has values while all is well, so that dashboards and tests see the alert's input.
    """

    name: str
    series: str
    comparison: str
    """Operator and threshold, e.g. `> 0.9`; or another recorded series with the same labels instead of a number."""
    hold: str
    """How long the comparison must hold, e.g. `2m`; with `0s` the alert fires at once."""
    severity: Severity
    summary: str
    description: str
    anchor: str
    """Anchor of the section in the runbook."""

    @property
    def expression(self) -> str:
        """The expression for Prometheus."""
        return f"{self.series} {self.comparison}"

    @property
    def annotations(self) -> dict[str, str]:
        """Summary, description and runbook for a person."""
        return {
            "summary": self.summary,
            "description": " ".join(self.description.split()),
            "runbook_url": f"{RUNBOOK}#{self.anchor}",
        }

    def to_yaml(self) -> dict[str, Any]:
        """The rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.hold,
            "labels": {"severity": self.severity},
            "annotations": self.annotations,
        }


def rule_file(group: str, rules: Sequence[Recording | Alert], every_seconds: int) -> str:
    """A file with one group; Prometheus evaluates its rules in order."""
    content = {
        "groups": [{"name": group, "interval": f"{every_seconds}s", "rules": [rule.to_yaml() for rule in rules]}]
    }
    return as_yaml(content)


def as_yaml(content: object) -> str:
    """YAML with the keys in the given order, below a line that names its writer."""
    text: str = yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)
    return f"# Written by pscluster from the inventory; `fab deploy monitor` replaces changes made here.\n{text}"
