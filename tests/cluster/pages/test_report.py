"""The report, from the files of a run's folder alone."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster import pages
from cluster.jobs.lifecycle import environment
from cluster.pages import __main__ as command
from cluster.pages.comparison import comparison, groups_of, times_of, with_letters
from cluster.pages.files import StoredRun, run_of
from cluster.pages.report import report
from core.ground.errors import UsageError
from tests.cluster.pages.elements import Elements, shows
from tests.cluster.pages.example import HOSTILE, estimating, failed, hostile, training
from tests.cluster.pages.folders import left, pi_result, train_result
from tests.tables import table

LEAK = {"by": "window", "groups": [], "leak": "windows <overlap>"}


def examples() -> dict[str, StoredRun]:
    where = Path("runs/x")
    result = train_result()
    return {
        "training": StoredRun(where, replace(training(), state="done"), result, environment()),
        "pi": StoredRun(where, estimating(state="done"), pi_result(16, 10**9, 14.0), environment()),
        "failed": StoredRun(
            where, failed(), train_result(status="failed", final=None, confusion=None)
        ),
        "leak": StoredRun(where, training(), {**result, "dataset": {"held_out": LEAK}}),
        "hostile": StoredRun(
            where,
            hostile(),
            {
                **result,
                "settings": {HOSTILE: HOSTILE},
                "chaos": {"injected": {HOSTILE: 1}},
                "by_group": [{"group": HOSTILE}],
                "wrong": [{"group": HOSTILE, "first": HOSTILE, "true": [], "predicted": HOSTILE}],
            },
            {"processor": HOSTILE},
        ),
        "nothing but the picture": StoredRun(where, training()),
    }


@pytest.mark.parametrize("name", examples())
def test_it_is_one_file_that_asks_nobody_for_anything_and_shows_this(name: str) -> None:
    text = report(examples()[name])
    page = Elements(text)
    page.asks_nobody()
    assert "sourceMappingURL" not in text
    assert "@import" not in text
    assert "url(" not in text.partition("</style>")[0]
    (policy,) = (
        attributes["content"] for _, attributes in page.found if "http-equiv" in attributes
    )
    assert str(policy).startswith("default-src 'none'")
    shows(text, table("cluster/pages/rows", "reports")[name])


def of_run(folder: Path, name: str, result: dict[str, Any]) -> StoredRun:
    """The run that left this result, read back."""
    return run_of(left(folder / f"20261121T{name}", result))


def test_a_run_of_which_little_is_known_gets_a_report_of_what_there_is(tmp_path: Path) -> None:
    text = report(of_run(tmp_path, "233535Z-train", train_result()))
    assert "Not in this report, because the run's folder lacks it: throughput" in text
    assert "did not record its versions" in text
    assert "90.00 %" in text
    assert text.count("<canvas") == 2
    assert "Accuracy by epoch" in text
    alone = report(of_run(tmp_path, "231300Z-pi", pi_result(16, 200_000_000, 7.4)))
    assert "3.1416000" in alone
    assert "<canvas" not in alone, "one point is no curve"


def test_a_job_leaves_report_and_environment(tmp_path: Path) -> None:
    folder = left(tmp_path / "20261121T233535Z-train", train_result())
    with pages.with_report(folder, environment):
        pass
    assert "Test accuracy" in (folder / "report.html").read_text()
    assert json.loads((folder / "environment.json").read_text())["python"]
    (folder / "report.html").unlink()

    def fails() -> None:
        with pages.with_report(folder, environment):
            raise ValueError("the job's own")

    with pytest.raises(ValueError, match="the job's own"):
        fails()
    assert (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_costs_a_warning_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pages.with_report(tmp_path / "gone", environment):
        pass
    assert len(caplog.records) == 1
    assert "no report" in caplog.text


def test_seeds_belong_together_and_other_settings_are_told_apart(tmp_path: Path) -> None:
    runs = [of_run(tmp_path, f"23353{seed}Z-train", train_result(seed)) for seed in range(3)]
    other = train_result(0, mode="sync")
    other["settings"]["mode"] = "sync"
    runs.append(of_run(tmp_path, "233539Z-train", other))
    assert [group.name for group in groups_of(with_letters(runs))] == ["A B C, 3 runs", "D"]
    text = comparison(runs)
    shows(text, table("cluster/pages/rows", "seeds"))
    Elements(text)


def test_time_against_samples(tmp_path: Path) -> None:
    million = 1_000_000
    places = table("cluster/pages/rows", "times of pi")
    runs = [
        of_run(tmp_path, f"2313{at:02}Z-pi", pi_result(*place)) for at, place in enumerate(places)
    ]
    long = runs[-1]
    runs[-1] = replace(long, view=replace(long.view, pi=estimating(16, 1000 * million, "done").pi))
    times = times_of(runs)
    assert [*times] == [1, 4, 16]
    alone, _, sixteen = (found[100 * million] for found in times.values())
    assert (alone.seconds, alone.runs) == (100.0, 2)
    assert sixteen.runs == 0, "passed on the way"
    assert 0 < sixteen.seconds < 70
    assert times[16][1000 * million].seconds == 70.0
    text = comparison(runs)
    assert '25 s <span class="hint">(4.0' in text
    Elements(text)


def test_many_runs_have_a_row_each(tmp_path: Path) -> None:
    results = [pi_result(workers, 10**7, 10.0) for workers in range(1, 9)]
    runs = [of_run(tmp_path, f"2313{at:02}Z-pi", result) for at, result in enumerate(results)]
    text = comparison(runs)
    assert "Those that differ stand with the figures above" in text
    Elements(text)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = left(tmp_path / "20261121T233535Z-train", train_result(cluster="\ud800"))
    two = left(tmp_path / "20261121T233536Z-train", train_result(1))
    both = ["--run", str(one), "--run", str(two)]
    monkeypatch.chdir(tmp_path)
    assert command.main(both[:2]) == 0
    assert capsys.readouterr().out == f"report: {one / 'report.html'}\n"
    assert command.main([*both, "--out", "both.html"]) == 0
    assert "2 runs side by side" in (tmp_path / "both.html").read_text()
    assert command.main(both) == 0
    assert (tmp_path / "comparison.html").exists()
    capsys.readouterr()
    assert command.main(["--run", "nothing"]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err
    with pytest.raises(UsageError, match="more than once"):
        command.write([one, one], None)
