"""Page, report and comparison of runs that learn something else than activities."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.pages.comparison import comparison
from cluster.pages.drawing import Drawing
from cluster.pages.files import StoredRun, run_of
from cluster.pages.report import report
from cluster.pages.words import WORDS, glossary, stage
from core.status.events import FiguresComputed
from core.status.history import LONGEST_LINE, event_of, line_of
from core.status.parts import MOST_COUNTED, Figures, by_class
from core.status.past_run import read_run
from core.status.view import RunView
from tests.cluster.pages import folders
from tests.cluster.pages.elements import Elements, shows
from tests.cluster.pages.example import HOSTILE, training
from tests.cluster.pages.other_tasks import (
    left,
    many_classes,
    multilabel,
    regression,
    regression_that_ended,
)
from tests.core.status.played_run import STARTED
from tests.tables import table

OF_PEOPLE = ("windows", "people", "activit", "recording")
"""Words that say nothing of other data."""
SCRIPTS = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
LOSS_ALONE = {"validation": {"loss": 2e-7}}
VIEWS = {
    "begun": regression(0).view(61.0),
    "loss alone": replace(regression(1).view(61.0), figures=LOSS_ALONE),
    "regression": regression().view(61.0),
    "ended": regression_that_ended().view(61.0),
    "labels": multilabel().view(61.0),
    "labels before": replace(multilabel().view(61.0), classes=None, figures={}),
    "classes": many_classes().view(61.0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_pages_and_reports_are_whole_and_speak_of_the_data_there_is(
    name: str, tmp_path: Path
) -> None:
    view = VIEWS[name]
    drawing = Drawing()
    page = Elements(drawing.page(view))
    for elements in (page, Elements(report(StoredRun(tmp_path, view)))):
        elements.runs_no_foreign_code()
        shown = SCRIPTS.sub("", elements.text).lower()
        assert [word for word in OF_PEOPLE if word in shown] == []
        assert "examples" in shown
    assert set(page.all("sse-swap")) == set(drawing.fragments(view))
    shows(page.text, table("cluster/pages/rows", "other tasks")[name])


def changed(folder: Path, labels: list[str], confusion: object) -> RunView:
    """The run of a folder whose result has these labels and that matrix."""
    path = folder / "result.json"
    result = json.loads(path.read_text())
    dataset = {**result["dataset"], "labels": labels}
    path.write_text(json.dumps({**result, "dataset": dataset, "confusion": confusion}))
    return read_run(folder)


def test_many_classes_of_a_result_are_counted(tmp_path: Path) -> None:
    folder = left(
        tmp_path / "20260101T000000Z-train", many_classes(), Figures(loss=0.5, accuracy=0.8)
    )
    matrix = (1 + 8 * np.eye(40, dtype=int)).tolist()
    classes = changed(folder, [f"c{at}" for at in range(40)], matrix).classes
    assert classes is not None
    assert (classes.split, len(classes.counts), classes.counts[3].wrong) == ("test", 40, 39)


def test_a_thousand_classes_fit_a_line_of_the_history() -> None:
    labels = [f"{at:04}" + "\N{SNOWMAN}" * 200 for at in range(1200)]
    rows = np.zeros((1200, 1200), int)
    rows[1199, [3, 1199]] = 17, 10**9
    found = by_class(labels, rows.tolist())
    assert len(found.counts) == MOST_COUNTED
    assert (found.counts[0].label[:4], found.counts[0].missed) == ("1199", 17)
    event = FiguresComputed(
        "test", Figures(loss=0.5, accuracy=0.8), counts=found.counts, mix_ups=found.mix_ups
    )
    line = line_of(event, 1.0, STARTED)
    assert len(line) < LONGEST_LINE
    assert event_of(line) is not None


@pytest.mark.parametrize("classes", [2, 40])
def test_a_label_that_is_not_utf_8_costs_no_page(classes: int) -> None:
    labels = tuple(f"{at}\udcff" for at in range(classes))
    rows = tuple(map(tuple, (1 + 4 * np.eye(classes, dtype=int)).tolist()))
    event = FiguresComputed("test", Figures(loss=0.5, accuracy=0.8), labels, rows)
    assert event_of(line_of(event, 1.0, STARTED)) == (1.0, event)
    played = many_classes(2)
    played.emit(event, 21.0)
    assert b"1\\udcff" in Drawing().page(played.view(61.0)).encode()


@pytest.mark.parametrize("confusion", table("cluster/pages/rows", "no matrix"))
def test_a_result_whose_matrix_is_none_is_drawn_without_it(
    tmp_path: Path, confusion: object
) -> None:
    folder = folders.left(tmp_path / "20260101T000000Z-train", folders.train_result())
    view = changed(folder, ["a", "b"], confusion)
    assert (view.confusion, view.classes) == (None, None)


SHOWN = ("MAE", "R²", "1.5000", "0.2500", "test loss", "examples a second")


def test_runs_side_by_side_have_rows_for_the_figures_that_any_of_them_has(tmp_path: Path) -> None:
    others = {"mae": 1.5, HOSTILE[:60]: 3.0}
    one, two = tmp_path / "20260101T000000Z-train", tmp_path / "20260102T000000Z-train"
    left(one, regression_that_ended(), Figures(loss=2.0, others=others))
    left(two, regression(2), Figures(loss=1.0, others={"r2": 0.25}))
    page = Elements(comparison([run_of(one), run_of(two)]))
    page.runs_no_foreign_code()
    words = "\n".join(page.words)
    for shown in (*SHOWN, "Loss for held-out examples"):
        assert shown in words
    assert not re.search("test accuracy|macro F1", words)
    three = folders.left(tmp_path / "20260103T000000Z-train", folders.train_result())
    assert "test accuracy" in "\n".join(Elements(comparison([run_of(one), run_of(three)])).words)


def test_words_of_recordings_stay_with_recordings() -> None:
    assert stage("refit", "windows") == "training again on all people"
    assert stage("refit", "examples") == "training again on all examples"
    assert stage("{unit}", "examples") == "{unit}"
    assert "window" not in glossary("examples")
    assert glossary("windows").keys() == WORDS["glossary"].keys()
    assert "held-out people" in Drawing().page(training())
