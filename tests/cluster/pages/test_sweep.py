"""The page of a sweep from small files: means and spreads, charts, hostile texts."""

import re
from pathlib import Path
from typing import Any

import pytest

from cluster.pages import __main__ as command
from cluster.pages import leave_report
from cluster.pages.files import read_sweep
from cluster.pages.sweep import charts_of_sweep, sweep_page, table_of_sweep
from cluster.pages.words import NOTHING
from core.ground.errors import UsageError
from tests.cluster.pages.elements import Elements
from tests.cluster.pages.sweeps import (
    MODEL,
    TABLE,
    final,
    hostile,
    left,
    of_the_thesis,
    run,
    sweep,
    waiting,
)

HIDDEN = f"{MODEL}.hidden"
LAYERS = f"{MODEL}.n_stacked_layers"
EXAMPLES = {
    "thesis": of_the_thesis(),
    "one seed": of_the_thesis(1),
    "hostile": hostile(),
    "not begun": sweep([waiting(1, {HIDDEN: 8}), waiting(2, {HIDDEN: 16})], state="running"),
    "no runs": sweep([], state="running"),
}
for name, rows in TABLE["examples"].items():
    EXAMPLES[name] = sweep([run(at, row[0], **row[1]) for at, row in enumerate(rows, 1)])


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_one_file_that_asks_nobody_for_anything(name: str, tmp_path: Path) -> None:
    Elements(sweep_page(left(tmp_path, EXAMPLES[name]))).asks_nobody()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_sweep_without_axes_varies_what_its_runs_set(name: str, tmp_path: Path) -> None:
    stored = EXAMPLES[name]
    alone = read_sweep(left(tmp_path / "alone", {**stored, "axes": []}))
    assert alone.varied == read_sweep(left(tmp_path / "with", stored)).axes


def test_mean_and_spread_are_over_the_seeds_that_ended(tmp_path: Path) -> None:
    eights = [run(seed, {HIDDEN: 8}, seed, final=final(0.90 + 0.02 * seed)) for seed in range(3)]
    runs = [
        *eights,
        run(4, {HIDDEN: 8}, 3, state="failed", error="lost"),
        run(5, {HIDDEN: 16}, 0, final=final(0.8)),
        run(6, {HIDDEN: 16}, 0, final=final(0.1)),  # the same seed again counts once
    ]
    found = read_sweep(left(tmp_path, sweep(runs)))
    eight, sixteen = found.groups
    assert eight.mean("accuracy") == pytest.approx(0.92)
    assert eight.spread("accuracy") == pytest.approx(0.02)
    assert (sixteen.mean("accuracy"), sixteen.spread("accuracy")) == (0.8, None)
    text = sweep_page(tmp_path)
    assert "<b>92.00 %</b> ± 2.00 %" in text
    assert "3 of 4, 1 failed" in text
    assert ">lost<" in text
    assert re.search(
        r"Test accuracy</dt><dd><strong>80.0 % to 92.0 %</strong>.*the test set chooses none", text
    )
    assert "Chosen" not in text, "nothing was held out"


def test_only_what_was_held_out_chooses(tmp_path: Path) -> None:
    runs = [
        run(1, {HIDDEN: 8}, final=final(0.95), selected={"accuracy": 0.5, "epoch": 3.0}),
        run(2, {HIDDEN: 16}, final=final(0.75), selected={"accuracy": 0.6, "epoch": None}),
    ]
    text = sweep_page(left(tmp_path, sweep(runs)))
    assert re.search(r"Chosen</dt><dd><strong>60.00 %</strong>.*test 75.00 %: hidden 16<", text)
    assert ">held-out accuracy</th>" in text


def test_a_figure_that_no_run_has_is_a_dash(tmp_path: Path) -> None:
    runs = [run(1, {HIDDEN: 32}), waiting(2, {HIDDEN: 77})]
    found = table_of_sweep(read_sweep(left(tmp_path, sweep(runs))))
    assert found.heads[:4] == ["runs", "<code>hidden</code>", "accuracy", "macro F1"]
    column = found.heads.index("time")
    assert [row[column] for row in found.rows] == ["1 min 0 s", NOTHING]


def test_a_chart_has_means_in_bands_for_each_kind_of_network(tmp_path: Path) -> None:
    (chart,) = charts_of_sweep(read_sweep(left(tmp_path, of_the_thesis())))
    assert chart.title == "Accuracy by hidden"
    plain = "n_stacked_layers 3, n_layers_in_highway 0, bidirectional false"
    names = [series.name for series in chart.series]
    assert names[:2] == [f"{plain}: lowest to highest", plain]
    assert chart.series[1].points == ((32.0, 0.905), (64.0, 0.905), (128.0, 0.905))


def test_six_lines_share_a_chart(tmp_path: Path) -> None:
    widths = range(8, 28, 2)
    runs = [
        run(10 * at + width, {LAYERS: at, HIDDEN: width}) for at in range(1, 9) for width in widths
    ]
    charts = charts_of_sweep(read_sweep(left(tmp_path, sweep(runs))))
    assert [len(chart.series) for chart in charts] == [6, 2]
    assert all(chart.x_label == "hidden" for chart in charts)


def test_settings_that_are_no_numbers_have_bars(tmp_path: Path) -> None:
    (chart,) = charts_of_sweep(read_sweep(left(tmp_path, EXAMPLES["words"])))
    assert (chart.kind, chart.labels) == ("bars", ("optimizer.name adam", "optimizer.name lion"))


def test_a_task_without_accuracy_is_drawn_by_its_loss(tmp_path: Path) -> None:
    text = sweep_page(left(tmp_path, EXAMPLES["regression"]))
    assert "Loss by hidden" in text
    assert "MAE" in text
    assert "Test accuracy" not in text


BROKEN: dict[str, Any] = {
    "no schema": {"schema": 2},
    "a state that is a number": {"state": 5},
    "a figure without end": {"runs": [run(1, {}, final={"accuracy": float("inf")})]},
    "negative seconds": {"runs": [run(1, {}, seconds=-1.0)]},
}


@pytest.mark.parametrize(
    "content",
    [
        *({**EXAMPLES["words"], **change} for change in BROKEN.values()),
        {key: value for key, value in EXAMPLES["words"].items() if key != "runs"},
        "sweep",
    ],
    ids=[*BROKEN, "no runs at all", "a text"],
)
def test_a_broken_file_is_one_line(content: Any, tmp_path: Path) -> None:
    left(tmp_path, content)
    with pytest.raises(UsageError, match="expected what `fab sweep` writes") as refused:
        sweep_page(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_sweeps_job_leaves_the_page_as_its_report(tmp_path: Path) -> None:
    folder = left(tmp_path / "20260131T120000Z-widths", of_the_thesis())
    leave_report(folder, dict)
    assert "Sweep widths" in (folder / "report.html").read_text()


def test_the_command_knows_a_sweep_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = left(tmp_path / "20260131T120000Z-widths", of_the_thesis())
    assert command.main(["--run", str(folder)]) == 0
    assert capsys.readouterr().out == f"report: {folder / 'report.html'}\n"
    assert "Sweep widths" in (folder / "report.html").read_text()
    assert command.main(["--run", str(folder), "--out", str(tmp_path / "there.html")]) == 0
    assert (tmp_path / "there.html").exists()
    with pytest.raises(UsageError, match=r"no sweep\.json in it"):
        sweep_page(tmp_path)
