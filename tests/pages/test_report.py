"""The report, from the files of a run's folder alone."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import UsageError
from cluster.jobs.lifecycle import environment
from cluster.pages import __main__ as command
from cluster.pages import leave
from cluster.pages.comparison import comparison, groups_of, named
from cluster.pages.pi_times import times_of
from cluster.pages.report import report
from cluster.pages.run_files import Run, run_of
from tests.pages.example import HOSTILE, estimating, failed, hostile, training
from tests.pages.folders import left, pi_result, train_result
from tests.pages.test_drawing import Elements


def examples() -> dict[str, Run]:
    where = Path("runs/x")
    result = train_result()
    return {
        "training": Run(where, replace(training(), state="done"), result, environment()),
        "pi": Run(where, estimating(state="done"), pi_result(16, 10**9, 14.0), environment()),
        "failed": Run(where, failed(), train_result(status="failed", final=None, confusion=None)),
        "hostile": Run(
            where,
            hostile(),
            {**result, "settings": {HOSTILE: HOSTILE}, "chaos": {"injected": {HOSTILE: 1}}},
            {"processor": HOSTILE},
        ),
        "nothing but the picture": Run(where, training()),
    }


@pytest.mark.parametrize("name", examples())
def test_it_is_one_file_that_asks_nobody_for_anything(name: str) -> None:
    text = report(examples()[name])
    elements = Elements(text)
    for tag, attributes in elements.found:
        assert "src" not in attributes, tag
        assert attributes.get("href") in (None, "data:,"), attributes
        assert not [key for key in attributes if key.startswith("on")]
    assert text.count("<script>") == 2, "Chart.js and what draws with it; data is JSON"
    assert "sourceMappingURL" not in text
    assert "@import" not in text
    assert "url(" not in text.partition("</style>")[0]
    policy = next(attributes["content"] for tag, attributes in elements.found if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    if name == "hostile":
        assert "<img" not in text
        assert "<script>alert" not in text


def test_the_report_of_a_training_has_everything(tmp_path: Path) -> None:
    text = report(examples()["training"])
    for words in ("Loss", "Accuracy", "Throughput", "Staleness", "Time of a step", "Worker timeline",
                  "Confusion matrix", "precision", "Epochs", "Bytes on the wire", "Failures survived",
                  "injected: kill-worker",
                  "Environment", "tensorflow", "aarch64 0x41 0xd03", "Settings", "recipe",
                  "Event log", "worker:15"):  # fmt: skip
        assert words in text, words


def test_a_test_set_that_leaks_is_named(tmp_path: Path) -> None:
    result = train_result()
    result["dataset"]["held_out"] = {"by": "window", "groups": [], "leak": "windows <overlap>"}
    text = report(run_of(left(tmp_path / "run", result)))
    assert "a leak" in text
    assert "windows &lt;overlap&gt;" in text
    assert "a leak" not in report(run_of(left(tmp_path / "other", train_result())))


def test_a_failed_run_says_why() -> None:
    text = report(examples()["failed"])
    assert "ps:0 at 192.168.1.10:2222 was lost" in text
    assert "ended by an error" in text


def test_a_run_of_which_little_is_known_gets_a_report_of_what_there_is(tmp_path: Path) -> None:
    text = report(run_of(left(tmp_path / "20261121T233535Z-train", train_result())))
    assert "Not in this report, because the run's folder lacks it: throughput" in text
    assert "did not record its versions" in text
    assert "90.00 %" in text
    assert text.count("<canvas") == 3
    assert "Accuracy, precision and recall by epoch" in text
    alone = report(run_of(left(tmp_path / "20261121T231300Z-pi", pi_result(16, 200_000_000, 7.4))))
    assert "3.1416000" in alone
    assert "<canvas" not in alone, "one point is no curve"


def test_a_job_leaves_report_and_environment(tmp_path: Path) -> None:
    folder = left(tmp_path / "20261121T233535Z-train", train_result())
    with leave.reported(folder, environment):
        pass
    assert "Test accuracy" in (folder / "report.html").read_text()
    assert json.loads((folder / "environment.json").read_text())["python"]
    (folder / "report.html").unlink()

    def fails() -> None:
        with leave.reported(folder, environment):
            raise ValueError("the job's own")

    with pytest.raises(ValueError, match="the job's own"):
        fails()
    assert (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_costs_a_warning_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    with caplog.at_level(logging.WARNING), leave.reported(tmp_path / "gone", environment):
        pass
    assert len(caplog.records) == 1
    assert "no report" in caplog.text


def test_seeds_belong_together_and_other_settings_are_told_apart(tmp_path: Path) -> None:
    runs = [run_of(left(tmp_path / f"2026112{seed}T233535Z-train", train_result(seed))) for seed in range(3)]
    other = train_result(0, mode="sync")
    other["settings"]["mode"] = "sync"
    runs.append(run_of(left(tmp_path / "20261125T233535Z-train", other)))
    assert [group.name for group in groups_of(named(runs))] == ["A B C, 3 runs", "D"]
    text = comparison(runs)
    assert "<b>91.00 %</b> ± 1.00 %" in text
    assert re.findall(r'class="differs"><th scope="row"><code>(\w+)', text) == ["mode", "seed"]
    assert "A B C, 3 runs: mean" in text
    assert "Precision for held-out people" in text
    assert "Recall for held-out people" in text
    Elements(text)


def test_time_against_samples(tmp_path: Path) -> None:
    million = 1_000_000
    places = [(1, 10 * million, 10.0), (1, 100 * million, 90.0), (1, 100 * million, 110.0), (4, 100 * million, 25.0),
              (16, 1000 * million, 70.0)]  # fmt: skip
    runs = [
        run_of(left(tmp_path / f"20261121T2313{at:02}Z-pi", pi_result(*place))) for at, place in enumerate(places)
    ]  # fmt: skip
    long = runs[-1]
    runs[-1] = replace(long, view=replace(long.view, pi=estimating(16, 1000 * million, "done").pi))
    times = times_of(runs)
    assert times.workers == (1, 4, 16)
    table = dict(zip(times.samples, times.cells, strict=True))
    hundred = table[100 * million]
    assert hundred[0] is not None
    assert hundred[1] is not None
    assert hundred[2] is not None
    assert (hundred[0].seconds, hundred[0].runs, hundred[0].thesis_has_none) == (100.0, 2, True)
    assert (hundred[1].speedup, hundred[1].thesis_seconds) == (4.0, 3.741)
    assert hundred[2].runs == 0, "passed on the way"
    assert 0 < hundred[2].seconds < 70
    text = comparison(runs)
    assert "thesis: N/A" in text
    assert "thesis: 3.74 s" in text
    assert "out of memory" not in text
    thousand = table[1000 * million]
    assert thousand[2] is not None
    assert (thousand[2].thesis_seconds, thousand[2].thesis_has_none) == (None, False), "its table ends at 100 million"
    Elements(text)


def test_many_runs_have_a_row_each(tmp_path: Path) -> None:
    runs = [
        run_of(left(tmp_path / f"20261121T2313{at:02}Z-pi", pi_result(at + 1, 10**7, 10.0))) for at in range(8)
    ]  # fmt: skip
    text = comparison(runs)
    assert "Those that differ stand with the figures above" in text
    Elements(text)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    one = left(tmp_path / "20261121T233535Z-train", train_result())
    two = left(tmp_path / "20261121T233536Z-train", train_result(1))
    assert command.main(["--run", str(one)]) == 0
    assert capsys.readouterr().out == f"report: {one / 'report.html'}\n"
    out = tmp_path / "both.html"
    assert command.main(["--run", str(one), "--run", str(two), "--out", str(out)]) == 0
    assert "2 runs side by side" in out.read_text()
    monkeypatch.chdir(tmp_path)
    assert command.main(["--run", str(one), "--run", str(two)]) == 0
    assert (tmp_path / "comparison.html").exists()
    capsys.readouterr()
    assert command.main(["--run", str(tmp_path / "nothing")]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err
    with pytest.raises(UsageError, match="more than once"):
        command.write([one, one], None)
