"""The pages of the published tables: up to date, every cell theirs, ours only where a file has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.references.tables import own_names, own_table
from tests.inventory.cases import PROJECT
from tools import measured as files
from tools import published_tables
from tools.kimm_tables import kimm_results
from tools.kth_rows import kth_charts, kth_rows
from tools.measured import NONE, NOT_YET
from tools.published_tables import pages, place_of, table_with_legend, thesis_table, thesis_tables, twins

MODEL = "jobs.train.model."
PLAIN = {f"{MODEL}n_stacked_layers": 3, f"{MODEL}n_layers_in_highway": 0, f"{MODEL}bidirectional": False}


def finished(settings: dict[str, Any], accuracy: float) -> dict[str, Any]:
    return {
        "id": "0001", "settings": settings, "seed": 0, "state": "finished", "seconds": 62.0, "cpu_seconds": 88.8,
        "updates": 888, "final": {"accuracy": accuracy, "f1_weighted": accuracy - 0.01},
    }  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results in the place of the project's."""
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    published_tables.trained.cache_clear()
    return tmp_path


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    published_tables.trained.cache_clear()


def test_the_pages_and_charts_in_the_repository_are_up_to_date() -> None:
    assert {"images/kth-time.svg", "images/kth-accuracy.svg"} < set(pages())
    assert not list(published_tables.stale()), "run `python -m tools.published_tables --write`"


def test_every_cell_of_theirs_stands_on_a_page() -> None:
    text = "\n".join(pages().values())
    for name in own_names():
        if not name.startswith("thesis-table-"):
            continue
        for row in own_table(name).rows:
            assert "time" not in row or f"| {row['time']} |" in text, (name, row)
            assert "accuracy" not in row or f"| {row['accuracy']:.4f} |" in text, (name, row)
            for column, value in row.items():
                assert (
                    not column.startswith("seconds_") or f"| {'N/A' if value is None else f'{value:.2f} s'} |" in text
                )


def test_a_row_is_one_of_the_52_runs_and_another_is_refused() -> None:
    rows = own_table("thesis-table-16-gpu-3x3-cpu-4x4").rows
    assert len({place_of(16, row) for row in rows}) == len(rows)
    with pytest.raises(ValueError, match="Table 16: no run"):
        place_of(16, {**rows[0], "hidden": 77})


def test_ours_stand_beside_theirs_once_a_file_has_them(measured: Path) -> None:
    assert thesis_table("thesis-table-06-learning-rate").count(NOT_YET) == 9
    runs = [
        finished({**PLAIN, f"{MODEL}hidden": 32}, 0.9),
        finished({**PLAIN, f"{MODEL}hidden": 32, "jobs.train.optimizer.learning_rate": 0.01}, 0.8),
        {**finished({**PLAIN, f"{MODEL}hidden": 64}, 0.7), "state": "running"},
    ]
    (measured / "sweep-thesis.json").write_text(json.dumps({"runs": runs}))
    published_tables.trained.cache_clear()
    table = thesis_table("thesis-table-06-learning-rate")
    ours = "0.8900 | 0:01:29 | 1.00 |"
    assert f"| 3 plain | 1 | 32 | 0.001 | 0.9118 | 0.9117 | 0:53:41 | 1.75 | **0.9000** | {ours}" in table
    assert "| 3 plain | 1 | 32 | 0.01 | 0.1805 | 0.0552 | 0:53:25 | 1.74 | **0.8000** |" in table
    assert table.count(NOT_YET) == 7


def test_several_seeds_have_their_mean_and_a_sweep_need_not_know_processor_time(measured: Path) -> None:
    runs = [finished({**PLAIN, f"{MODEL}hidden": 32}, accuracy) for accuracy in (0.8, 0.9)]
    for run in runs:
        del run["cpu_seconds"], run["updates"]
    (measured / "sweep-thesis.json").write_text(json.dumps({"runs": runs}))
    table = thesis_table("thesis-table-10-plain-bidirectional")
    assert "| 3 plain | 1 | 32 | 0.9118 | 0:53:41 | 1.75 | **0.8500** | 0:01:02 | – |" in table  # noqa: RUF001


def test_the_pis_and_pytorch_have_results_of_their_own(measured: Path) -> None:
    (measured / "sweep-thesis.json").write_text(json.dumps({"runs": [finished({**PLAIN, f"{MODEL}hidden": 32}, 0.9)]}))
    pis = [{"workers": workers, "hidden": 32, "accuracy": 0.01 * workers, "seconds": 100.0} for workers in (8, 16)]
    (measured / "pis-table-21.json").write_text(json.dumps({"rows": pis}))
    twin = [
        {"contestant": name, "hidden": 32, "accuracy": 0.5, "train_seconds": 7.0}
        for name in ("pytorch", "pytorch DDP on 2")
    ]
    (measured / "pytorch_twin.json").write_text(json.dumps({"rows": twin}))
    table = thesis_table("thesis-table-21-pis-xeon")
    assert "| 32 | 16 Raspberry Pi 3B+ | 0.9217 | 1:43:51 | – | **0.1600** | 0:01:40 | – |" in table  # noqa: RUF001
    assert "| 32 | Intel Xeon CPU | 0.9118 | 0:53:41 | 1.75 | **0.9000** | 0:01:29 | 1.00 |" in table
    table = thesis_table("thesis-table-20-pytorch-tensorflow")
    assert "| 32 | PyTorch | 0.9115 | 0:40:53 | 1.33 | **0.5000** |" in table
    assert "| 32 | TensorFlow | 0.9118 | 0:53:41 | 1.75 | **0.9000** |" in table


def test_a_time_has_the_sign_of_its_processor_and_an_unknown_one_is_refused(measured: Path) -> None:
    runs = [
        finished({**PLAIN, f"{MODEL}hidden": 32}, 0.9),
        {**finished({**PLAIN, f"{MODEL}hidden": 64}, 0.8), "processor": "AMD EPYC"},
        finished({**PLAIN, f"{MODEL}hidden": 128}, 0.7),
        {**finished({**PLAIN, f"{MODEL}hidden": 128}, 0.7), "processor": "AMD EPYC"},
    ]
    found = {"machine": {"processor": "Intel(R) Xeon(R) Processor"}, "runs": runs}
    (measured / "sweep-thesis.json").write_text(json.dumps(found))
    table = table_with_legend("thesis-table-21-pis-xeon")
    for shown in ("**0.9000** | 0:01:29 † |", "**0.8000** | 0:01:29 ‡ |", "**0.7000** | 0:01:29 § |"):
        assert shown in table
    legend = "† Intel(R) Xeon(R) Processor, ‡ AMD EPYC, § several processors; compare times of one sign alone."
    assert table.endswith(f"\n\nOur times of Table 21: {legend}")
    assert thesis_tables().startswith(f"Our times of Tables 6 to 19: {legend}\n\n## Table 6")
    (measured / "sweep-thesis.json").write_text(json.dumps({**found, "machine": {"processor": "Z80"}}))
    published_tables.trained.cache_clear()
    with pytest.raises(ValueError, match=r"no sign for times of 'Z80': give it one in SIGNS of tools/measured\.py"):
        thesis_tables()


def test_a_window_of_the_pis_and_of_pytorch_has_a_time_where_the_epochs_are_known(measured: Path) -> None:
    pis = {"workers": 16, "hidden": 32, "accuracy": 0.9, "seconds": 148.0, "epochs": [700.0, 800.0]}
    (measured / "pis-table-21.json").write_text(json.dumps({"rows": [pis]}))
    twin = {"contestant": "pytorch", "hidden": 64, "accuracy": 0.5, "train_seconds": 22.2, "epochs": 30}
    (measured / "pytorch_twin-h64.json").write_text(json.dumps({"rows": [twin], "machine": {"processor": "AMD EPYC"}}))
    assert "**0.9000** | 0:02:28 | 10.00 |" in thesis_table("thesis-table-21-pis-xeon")
    assert "| 64 | PyTorch | 0.9023 | 0:51:39 | 1.69 | **0.5000** | 0:00:22 ‡ | 0.10 |" in thesis_table(
        "thesis-table-20-pytorch-tensorflow"
    )


def test_the_twins_have_a_table_of_their_own_once_a_file_has_them(measured: Path) -> None:
    assert twins() == ""
    for hidden in (32, 64):
        rows = [
            {"contestant": name, "hidden": hidden, "train_seconds": seconds}
            for name, seconds in (("ours sync on 2", 50.0), ("pytorch DDP on 2", 75.0))
        ]
        summary = {
            "ours sync on 2": {"mean_accuracy": 0.9, "seconds": 50.0},
            "pytorch DDP on 2": {"mean_accuracy": 0.8, "seconds": 75.0, "time_over_ours": 1.504},
        }
        found = {"rows": rows, "summary": summary, "machine": {"processor": "AMD EPYC"}}
        (measured / f"pytorch_twin-h{hidden}.json").write_text(json.dumps(found))
    _, _, heads, _, first, second, *_ = twins().splitlines()
    assert heads == "| contestant | units | accuracy | seconds | time over ours |"
    assert first == f"| ours sync on 2 | 32 | 0.9000 | 50 s ‡ | {NONE} |"
    assert second == "| pytorch DDP on 2 | 32 | 0.8000 | 75 s ‡ | 1.50 |"
    assert twins().count("| 64 |") == 2


def test_kths_bars_have_ours_at_as_many_updates_on_both_splits(measured: Path) -> None:
    point = {"updates": 2000, "seconds": 61.0, "accuracy": 0.75, "loss": 1.0}
    rows = [
        {"theirs": "spark-8-exec-async", "split": "people", "at": {"2000": point, "5000": {**point, "accuracy": None}}},
        {"theirs": "", "split": "random", "at": {"2000": point}},
    ]
    (measured / "kth.json").write_text(json.dumps({"rows": rows}))
    table = kth_charts()
    assert "| spark-8-exec-async | 2,000 | 0.60 | 0.6 h | not measured | – | **0.7500** | 0:01:01 |" in table  # noqa: RUF001
    assert table.count("**") == 2
    assert f"| local-gpu | 2,000 | 0.93 | 4.2 h | no GPU here | {NONE} | no GPU here | {NONE} |" in table


def test_kths_trainings_have_the_marks_that_some_have_reached_and_the_time_to_an_accuracy(measured: Path) -> None:
    point = {"updates": 2415, "seconds": 61.0, "accuracy": 0.512, "loss": 1.0}
    row = {"split": "people", "mode": "single", "workers": 0, "learning_rate": 0.0025, "curve": [point]}
    later = {**row, "mode": "async", "workers": 8, "curve": [{**point, "accuracy": 0.4}, {**point, "updates": 4830}]}
    rows = [
        {**row, "at": {"2000": point, "5000": None}, "updates_to": {"0.50": 2415, "0.60": None},
         "seconds_to": {"0.50": 61.2, "0.60": None}},
        {**later, "at": {"2000": None}, "updates_to": {"0.50": None, "0.60": None}, "seconds_to": {}},
    ]  # fmt: skip
    rows[1]["seconds_to"] = dict.fromkeys(("0.50", "0.60"))
    (measured / "kth.json").write_text(json.dumps({"summary": {"marks": [2000, 5000]}, "rows": rows}))
    heads, _, alone, asynchronous = kth_rows().splitlines()
    assert heads == "| split | mode | workers | rate | 2,000 updates | to 0.50 | to 0.60 | best so far | trained |"
    none = NONE
    of_all = f"| by people | one process | {none} | 0.0025 | 0.512 | 2,415 in 61 s | {none} | 0.512 at 2,415 "
    assert alone == f"{of_all}| 2,415 in 61 s |"
    assert asynchronous.endswith(f"| {none} | {none} | {none} | 0.512 at 4,830 | 4,830 in 61 s |")


def test_kimms_repeats_have_mean_and_deviation(measured: Path) -> None:
    (measured / "accuracy-dblstm.json").write_text(
        (PROJECT / "benchmarks" / "results" / "accuracy-dblstm.json").read_text()
    )  # fmt: skip
    runs = []
    for seed, accuracy in enumerate((0.90, 0.94)):
        settings = {f"{MODEL}units": 32, f"{MODEL}layers": 2, "jobs.train.batch_size": 64}
        figures = dict.fromkeys(("accuracy", "precision_macro", "recall_macro", "f1_macro"), accuracy)
        runs.append({**finished(settings, 0.0), "seed": seed, "final": figures})
    unfinished = {f"{MODEL}units": 64, f"{MODEL}layers": 2, "jobs.train.batch_size": 64}
    runs.append({**finished(unfinished, 0.0), "state": "waiting", "final": None})
    (measured / "sweep-kimm.json").write_text(json.dumps({"runs": runs, "machine": {"processor": "AMD EPYC"}}))
    table = kimm_results()
    twice = "| ours | 32 | 2 | 64 | **0.9200 ± 0.0283** | 0.9200 ± 0.0283 | 0.9200 ± 0.0283 | 0.9200 ± 0.0283 |"
    assert f"{twice} 0:01:29 ‡ | 2 of 10 |" in table
    assert table.count("| ours |") == 1, "a setting without a repeat has no row"
    assert "240 trainings. 2 of them are trained, in 1 settings" in table


def test_a_page_without_its_marks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tables.md", "tables-thesis.md", "tables-kimm.md", "tables-kth.md", "kth.md"):
        (tmp_path / name).write_text("nothing")
    monkeypatch.setattr(published_tables, "DOCS", tmp_path)
    with pytest.raises(ValueError, match=r"docs/tables\.md: expected a line"):
        pages()
