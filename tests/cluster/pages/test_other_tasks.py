"""Page, report and comparison of runs that learn something else than activities."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.pages.comparison import comparison
from cluster.pages.drawing import MOST_ROWS, Drawing, class_panel
from cluster.pages.facts import live_tiles
from cluster.pages.files import StoredRun, run_of
from cluster.pages.report import report
from cluster.pages.rows import Tile, charts_of
from cluster.pages.words import WORDS, glossary, stage
from core.status.events import FiguresComputed
from core.status.history import LONGEST_LINE, event_of, line_of
from core.status.parts import MOST_COUNTED, Figures, by_class
from core.status.past_run import read_run
from core.status.view import RunView
from tests.cluster.pages import folders
from tests.cluster.pages.elements import Elements
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
VIEWS = {
    "begun": regression(0).view(61.0),
    "regression": regression().view(61.0),
    "ended": regression_that_ended().view(61.0),
    "labels": multilabel().view(61.0),
    "classes": many_classes().view(61.0),
}


def tile(view: RunView, name: str) -> Tile:
    return next(one for one in live_tiles(view) if one.name == name)


def classes_of(view: RunView) -> dict[str, Any]:
    found = class_panel(view)
    assert found is not None
    return found


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


def test_a_regression_shows_its_loss_and_a_chart_for_each_of_its_figures() -> None:
    for view in (VIEWS["begun"], regression(1).view(61.0)):
        assert "accuracy" not in [chart.id for chart in charts_of(view)], "not even an empty one"
    view = VIEWS["ended"]
    charts = [chart for chart in charts_of(view) if chart.id.startswith("other-")]
    assert [chart.title for chart in charts] == ["MAE", "RMSE", "R²", HOSTILE[:60]]
    assert [len(chart.series[0].points) for chart in charts] == [5] * 4
    assert (
        charts[2].hint
        == "1 is perfect, 0 is guessing the mean. After each epoch, on held-out examples."
    )
    tiles = {one.name: one for one in live_tiles(view)}
    assert [*tiles][2:7] == ["Epoch", "Loss", "MAE", "RMSE", "R²"]
    assert (tiles["R²"].value, tiles["MAE"].value) == ("0.8125", "2469.12")
    early = "no better for 3 epochs (best: epoch 2)"
    assert early in tiles["Epoch"].hint
    assert class_panel(view) is None
    assert f"Stopped early: {early}." in Drawing().fragments(view)["head"]


def test_a_regression_says_what_of_its_figures_there_is_so_far() -> None:
    names = [one.name for one in live_tiles(VIEWS["begun"])]
    assert names == ["Workers", "Throughput", "Epoch", "Loss", "Staleness"]
    alone = replace(regression(1).view(61.0), figures={"validation": {"loss": 2e-7}})
    assert tile(alone, "Validation loss") == Tile(
        "Validation loss", "2e-07", "of held-out examples; lower is better"
    )


def test_labels_have_a_table_of_their_own() -> None:
    view = VIEWS["labels"]
    panel = classes_of(view)
    assert (panel["title"], panel["table"].heads[0]) == ("Labels", "label")
    assert "Held-out examples, after epoch 2. Precision" in Drawing().fragments(view)["confusion"]
    rain, snow, *_ = panel["table"].rows
    assert rain[0] == "rain"
    assert snow[:3] == ["Snow storm", f"{11 / 12:.3f}", f"{11 / 15:.3f}"]
    assert [chart.id for chart in charts_of(view)][:3] == ["loss", "accuracy", "other-0"]
    assert tile(view, "Labels right").value == "0.9000"
    before = replace(view, classes=None, figures={})
    assert classes_of(before)["title"] == "Labels"
    assert "Comes with the first evaluation" in Drawing().fragments(before)["confusion"]


def changed(folder: Path, labels: list[str], confusion: object) -> RunView:
    """The run of a folder whose result has these labels and that matrix."""
    path = folder / "result.json"
    result = json.loads(path.read_text())
    dataset = {**result["dataset"], "labels": labels}
    path.write_text(json.dumps({**result, "dataset": dataset, "confusion": confusion}))
    return read_run(folder)


def test_many_classes_become_their_worst_and_the_most_frequent_mistakes(tmp_path: Path) -> None:
    view = VIEWS["classes"]
    assert view.confusion is None
    panel = classes_of(view)
    rows = panel["table"].rows
    assert (panel["title"], len(rows), panel["classes"]) == ("Classes", MOST_ROWS, 130)
    assert [row[3] for row in rows] == sorted(row[3] for row in rows)
    assert [row[2] for row in panel["mix_ups"].rows] == ["6"] * 20
    assert "The 100 of 130 with the lowest F1." in Drawing().page(view)
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
