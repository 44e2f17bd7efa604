"""Figures of any task: which of them there are, how they are written, which ones are better."""

import json
from typing import Any

import pytest

from core.status.history import event_of
from core.status.parts import FIGURE_KEYS, MOST_OTHERS, Figures
from tests.tables import table

CASES = table("core/status/figures")
TIME = {"time": "2026-01-01T00:00:00.000+00:00", "seconds": 1.0}


def test_every_usual_figure_has_its_key_and_the_others_stand_beside_them() -> None:
    known: dict[str, Any] = {"loss": 0.25, "accuracy": 0.875, "f1_macro": 0.8}
    others = {"r2": 0.9, "mae": 12345.678}
    assert tuple(Figures(**known).describe()) == FIGURE_KEYS
    described = Figures(**known, others=others).describe()
    assert described == {**dict.fromkeys(FIGURE_KEYS), **known, **others}
    assert hash(Figures(loss=0.25, others=others)) == hash(Figures(loss=0.25))


@pytest.mark.parametrize(("figures", "line"), CASES["lines"])
def test_a_line_says_what_there_is(figures: dict[str, Any], line: str) -> None:
    assert Figures(**figures).line() == line


@pytest.mark.parametrize("case", CASES["better"].values(), ids=CASES["better"])
def test_accuracy_decides_and_the_loss_where_there_is_none(case: dict[str, Any]) -> None:
    first = Figures(**case["first"])
    assert first.better_than(Figures(**case["second"])) is case["better"]
    assert first.better_than(None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        *CASES["confused"],
        ([str(at) for at in range(MOST_OTHERS + 1)], "at most 32 other figures, got 33"),
        (["x" * 101], "1 to 100 printable characters"),
    ],
)
def test_names_that_would_be_confused_are_refused(names: list[str], words: str) -> None:
    others = dict.fromkeys(names, 1.0)
    with pytest.raises(ValueError, match=words):
        Figures(loss=1.0, others=others)
    figures = {"loss": 1.0, "others": others}
    line = {"event": "figures", **TIME, "split": "test", "figures": figures}
    assert event_of(json.dumps(line).encode()) is None, "in a foreign file neither"


def test_a_figure_that_is_no_number_is_left_out() -> None:
    others = {"r2": float("nan"), "mae": float("inf"), "rmse": 1.0}
    assert Figures(loss=1.0, others=others).others == {"rmse": 1.0}


@pytest.mark.parametrize("event", CASES["earlier"], ids=lambda event: event["event"])
def test_lines_from_before_there_were_other_tasks_are_read(event: dict[str, Any]) -> None:
    assert event_of(json.dumps({**TIME, **event}).encode()) is not None
