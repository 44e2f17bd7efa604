"""Figures of any task: which of them there are, how they are written, which ones are better."""

import json

import pytest

from cluster.status.history import event_of
from cluster.status.parts import FIGURE_KEYS, MOST_OTHERS, Figures

CLASSES = Figures(loss=0.5, accuracy=0.875, f1_macro=0.8)
REGRESSION = Figures(loss=0.25, others={"r2": 0.9, "mae": 12345.678, "rmse": 0.00012})


def test_every_usual_figure_has_its_key_and_the_others_stand_beside_them() -> None:
    assert tuple(CLASSES.describe()) == FIGURE_KEYS
    assert CLASSES.describe() == {**dict.fromkeys(FIGURE_KEYS), "loss": 0.5, "accuracy": 0.875, "f1_macro": 0.8}
    assert REGRESSION.describe() == {**dict.fromkeys(FIGURE_KEYS), "loss": 0.25, **REGRESSION.others}
    assert hash(REGRESSION) == hash(Figures(loss=0.25))


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (CLASSES, "accuracy 0.8750, macro F1 0.8000"),
        (Figures(loss=0.5, f1_macro=0.8, others={"hamming": 0.1}), "macro F1 0.8000, hamming 0.1000"),
        (REGRESSION, "loss 0.2500, r2 0.9000, mae 12345.68, rmse 0.00012"),
        (Figures(loss=2e6, others={str(at): at for at in range(6)}),
         "loss 2000000.00, 0 0.0000, 1 1.0000, 2 2.0000, 3 3.0000, 2 more"),
    ],
)  # fmt: skip
def test_a_line_says_what_there_is(figures: Figures, line: str) -> None:
    assert figures.line() == line


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [
        (CLASSES, None, True),
        (CLASSES, Figures(loss=0.1, accuracy=0.874), True),
        (CLASSES, Figures(loss=9.0, accuracy=0.875), False),
        (REGRESSION, Figures(loss=0.26), True),
        (REGRESSION, Figures(loss=0.25), False),
        (REGRESSION, Figures(loss=0.5, accuracy=0.1), True),
    ],
    ids=["alone", "higher accuracy", "equal accuracy", "lower loss", "equal loss", "one without accuracy"],
)
def test_accuracy_decides_and_the_loss_where_there_is_none(one: Figures, other: Figures | None, better: bool) -> None:
    assert one.better_than(other) is better


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["epoch", "loss"], "names of their own, got epoch, loss"),
        ([str(at) for at in range(MOST_OTHERS + 1)], "at most 32 other figures, got 33"),
        ([""], "1 to 100 printable characters, got ''"),
        (["x" * 101], "1 to 100 printable characters"),
        (["r\n2"], "1 to 100 printable characters"),
    ],
)
def test_names_that_would_be_confused_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Figures(loss=1.0, others=dict.fromkeys(names, 1.0))
    line = {
        "event": "figures", "time": "2026-01-01T00:00:00Z", "seconds": 1.0, "split": "test",
        "figures": {"loss": 1.0, "others": dict.fromkeys(names, 1.0)},
    }  # fmt: skip
    assert event_of(json.dumps(line).encode()) is None, "a foreign file holds no such figures either"


def test_a_figure_that_is_no_number_is_left_out() -> None:
    assert Figures(loss=1.0, others={"r2": float("nan"), "mae": float("inf"), "rmse": 1}).others == {"rmse": 1.0}


def test_lines_of_earlier_versions_are_read() -> None:
    """As `history.jsonl` had them before there were other tasks."""
    usual = dict.fromkeys(FIGURE_KEYS, 0.5)
    head = {"time": "2026-01-01T00:00:00.000+00:00", "seconds": 60.0}
    epoch = {
        "event": "epoch", **head, "stage": "train", "epoch": 1, "loss": 0.5, "accuracy": 0.8, "rate": 0.01,
        "windows_per_second": 20.0, "seconds_left": 12.0, "validation": usual,
    }  # fmt: skip
    figures = {
        "event": "figures", **head, "split": "test", "figures": usual, "labels": ["a"], "rows": [[1]], "epoch": 1,
    }  # fmt: skip
    opened = {"event": "opened", **head, "run": "20260101T000000Z-train", "job": "train", "parameters": 3}
    for line in (epoch, figures, opened):
        assert event_of(json.dumps(line).encode()) is not None
