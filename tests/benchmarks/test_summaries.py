"""What benchmarks make of their rows: medians of rounds, ratios within one, null without any."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shown import part

CASES = yaml.safe_load(Path(__file__).with_name("summaries.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_come_to_this_summary(case: dict[str, Any]) -> None:
    summarize = getattr(import_module(case["module"]), case.get("function", "summarize"))
    found = summarize(case["rows"], *case.get("more", ()))
    assert part(found, case["summary"]) == case["summary"]
