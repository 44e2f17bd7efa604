"""Page, report and comparison of runs that learn something else than activities."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.pages.class_tables import MOST_ROWS, class_panel
from cluster.pages.comparison import comparison
from cluster.pages.drawing import Drawing
from cluster.pages.panels import Tile, tiles_of
from cluster.pages.report import report
from cluster.pages.run_charts import charts_of
from cluster.pages.run_files import Run, run_of
from cluster.pages.words import WORDS, glossary, stage
from cluster.status.classes import MOST_COUNTED, by_class
from cluster.status.events import FiguresComputed
from cluster.status.history import LONGEST_LINE, event_of, line_of, read_run
from cluster.status.parts import Figures
from cluster.status.view import RunView
from tests.pages import folders
from tests.pages.example import HOSTILE, training
from tests.pages.other_tasks import left, many_classes, multilabel, regression, regression_that_ended
from tests.pages.test_drawing import Elements
from tests.status.played_run import STARTED, Played

OF_PEOPLE = ("windows", "people", "activit", "recording")
"""Words that say nothing of other data."""
SCRIPTS = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
PLAYED = {
    "begun": regression(0), "regression": regression(), "ended": regression_that_ended(), "labels": multilabel(),
    "classes": many_classes(),
}  # fmt: skip


def view_of(played: Played) -> RunView:
    return played.view(61.0)


def tile(tiles: list[Tile], name: str) -> Tile:
    return next(one for one in tiles if one.name == name)


@pytest.mark.parametrize("name", PLAYED)
def test_pages_and_reports_are_whole_and_speak_of_the_data_there_is(name: str, tmp_path: Path) -> None:
    view = view_of(PLAYED[name])
    drawing = Drawing()
    texts = [drawing.page(view), report(Run(tmp_path, view))]
    for text in texts:
        Elements(text)
        shown = SCRIPTS.sub("", text).lower()
        assert [word for word in OF_PEOPLE if word in shown] == []
        assert "examples" in shown
        assert "<img" not in text
        assert "<script>alert" not in text
    page = Elements(texts[0])
    places = {attributes["sse-swap"] for _, attributes in page.found if "sse-swap" in attributes}
    assert places == set(drawing.fragments(view))


def test_a_regression_shows_its_loss_and_a_chart_for_each_of_its_figures() -> None:
    for played in (regression(0), regression(1)):
        assert "accuracy" not in [chart.id for chart in charts_of(view_of(played))], "not even an empty one"
    view = view_of(regression_that_ended())
    charts = [chart for chart in charts_of(view) if chart.id.startswith("other-")]
    assert [chart.title for chart in charts] == ["MAE", "RMSE", "R²", HOSTILE[:60]]
    assert [len(chart.series[0].points) for chart in charts] == [5] * 4
    assert charts[2].hint == "1 is perfect, 0 is guessing the mean. After each epoch, on held-out examples."
    tiles = tiles_of(view)
    assert [one.name for one in tiles[2:7]] == ["Epoch", "Loss", "MAE", "RMSE", "R²"]
    assert tile(tiles, "R²").value == "0.8125"
    assert tile(tiles, "MAE").value == "2469.12"
    assert "no better for 3 epochs (best: epoch 2)" in tile(tiles, "Epoch").hint
    assert class_panel(view) is None
    assert "Stopped early: no better for 3 epochs (best: epoch 2)." in Drawing().fragments(view)["head"]


def test_a_regression_says_what_of_its_figures_there_is_so_far() -> None:
    names = [one.name for one in tiles_of(view_of(regression(0)))]
    assert names == ["Workers", "Throughput", "Epoch", "Loss", "Staleness"]
    alone = replace(view_of(regression(1)), figures={"validation": {"loss": 2e-7}})
    assert tile(tiles_of(alone), "Validation loss") == Tile(
        "Validation loss", "2e-07", "of held-out examples; lower is better"
    )


def test_labels_have_a_table_of_their_own() -> None:
    view = view_of(multilabel())
    panel = class_panel(view)
    assert panel is not None
    assert (panel.title, panel.kind, panel.cells) == ("Labels", "label", ())
    assert panel.evaluated == "Held-out examples, after epoch 2"
    assert [row.name for row in panel.rows][:2] == ["rain", "SNOW_STORM"]
    assert (panel.rows[1].precision, panel.rows[1].recall) == (11 / 12, 11 / 15)
    assert [chart.id for chart in charts_of(view)][:3] == ["loss", "accuracy", "other-0"]
    assert tile(tiles_of(view), "Labels right").value == "0.9000"
    before = replace(view, classes=None, figures={})
    waiting = class_panel(before)
    assert waiting is not None
    assert waiting.title == "Labels"
    assert "Comes with the first evaluation" in Drawing().fragments(before)["confusion"]


def test_many_classes_become_their_worst_and_the_most_frequent_mistakes(tmp_path: Path) -> None:
    played = many_classes()
    view = view_of(played)
    assert view.confusion is None
    panel = class_panel(view)
    assert panel is not None
    assert (panel.title, len(panel.rows), panel.left_out) == ("Classes", MOST_ROWS, 30)
    assert [row.f1 for row in panel.rows] == sorted(row.f1 for row in panel.rows)
    assert [one.examples for one in panel.mix_ups] == [6] * 20
    assert "The 100 of 130 with the lowest F1." in Drawing().page(view)
    folder = left(tmp_path / "20260101T000000Z-train", played, Figures(loss=0.5, accuracy=0.8))
    result = json.loads((folder / "result.json").read_text())
    rows = [[9 if true == given else 1 for given in range(40)] for true in range(40)]
    labels = [f"c{at}" for at in range(40)]
    (folder / "result.json").write_text(json.dumps({**result, "dataset": {"labels": labels}, "confusion": rows}))
    classes = read_run(folder).classes
    assert classes is not None
    assert (classes.split, len(classes.counts), classes.counts[3].wrong) == ("test", 40, 39)


def test_a_thousand_classes_fit_a_line_of_the_history() -> None:
    labels = [f"{at:04}" + "\N{SNOWMAN}" * 200 for at in range(1200)]
    rows = [[0] * 1200 for _ in labels]
    rows[1199][1199], rows[1199][3] = 10**9, 17
    found = by_class(labels, rows)
    assert len(found.counts) == MOST_COUNTED
    assert (found.counts[0].label[:4], found.counts[0].missed) == ("1199", 17)
    figures = Figures(loss=0.5, accuracy=0.8)
    line = line_of(FiguresComputed("test", figures, counts=found.counts, mix_ups=found.mix_ups), 1.0, STARTED)
    assert len(line) < LONGEST_LINE
    assert event_of(line) is not None


@pytest.mark.parametrize("classes", [2, 40])
def test_a_label_that_is_not_utf_8_costs_no_page(classes: int) -> None:
    labels = tuple(f"{at}\udcff" for at in range(classes))
    rows = tuple(tuple(5 if true == given else 1 for given in range(classes)) for true in range(classes))
    event = FiguresComputed("test", Figures(loss=0.5, accuracy=0.8), labels, rows)
    assert event_of(line_of(event, 1.0, STARTED)) == (1.0, event)
    played = many_classes(2)
    played.emit(event, 21.0)
    assert b"1\\udcff" in Drawing().page(view_of(played)).encode()


@pytest.mark.parametrize("confusion", [[[1, "x"], [2, 3]], [[1, 2]], "x", [[1, -2], [3, 4]], None, [[], []]])
def test_a_result_whose_matrix_is_none_is_drawn_without_it(tmp_path: Path, confusion: object) -> None:
    folder = folders.left(tmp_path / "20260101T000000Z-train", folders.train_result())
    result = json.loads((folder / "result.json").read_text())
    labels = {**result["dataset"], "labels": ["a", "b"]}
    (folder / "result.json").write_text(json.dumps({**result, "dataset": labels, "confusion": confusion}))
    view = read_run(folder)
    assert (view.confusion, view.classes) == (None, None)


def test_runs_side_by_side_have_rows_for_the_figures_that_any_of_them_has(tmp_path: Path) -> None:
    one = left(
        tmp_path / "20260101T000000Z-train", regression_that_ended(),
        Figures(loss=2.0, others={"mae": 1.5, HOSTILE[:60]: 3.0}),
    )  # fmt: skip
    two = left(tmp_path / "20260102T000000Z-train", regression(2), Figures(loss=1.0, others={"r2": 0.25}))
    text = comparison([run_of(one), run_of(two)])
    page = Elements(text)
    for words in ("MAE", "R²", "1.5000", "0.2500", "test loss", "examples a second", "Loss for held-out examples"):
        assert any(words in word for word in page.words), words
    assert not any("test accuracy" in word or "macro F1" in word for word in page.words)
    assert "<img" not in text
    three = folders.left(tmp_path / "20260103T000000Z-train", folders.train_result())
    both = [word for word in Elements(comparison([run_of(one), run_of(three)])).words if "accuracy" in word]
    assert any("test accuracy" in word for word in both)


def test_words_of_recordings_stay_with_recordings() -> None:
    assert stage("refit", "windows") == "training again on all people"
    assert stage("refit", "examples") == "training again on all examples"
    assert stage("{unit}", "examples") == "{unit}"
    assert "window" not in glossary("examples")
    assert glossary("windows").keys() == WORDS.glossary.keys()
    assert "held-out people" in Drawing().page(training())
