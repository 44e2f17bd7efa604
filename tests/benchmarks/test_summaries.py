"""What benchmarks make of their rows: medians of rounds, ratios within one, null without any."""

from importlib import import_module
from typing import Any

import pytest

from tests.shown import part
from tests.tables import table

CASES = table("benchmarks/summaries")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_come_to_this_summary(case: dict[str, Any]) -> None:
    summarize = getattr(import_module(case["module"]), case.get("function", "summarize"))
    found = summarize(case["rows"], *case.get("more", ()))
    assert part(found, case["summary"]) == case["summary"]
