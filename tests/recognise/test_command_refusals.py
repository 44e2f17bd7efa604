"""`python -m recognise`: recordings, flags and models that get no label, and why."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recognise.command import Here, events, text
from tests.recognise.exports import export
from tests.recognise.readings import walk
from tests.recognise.wrong_recordings import WRONG, Change, first
from tests.tables import table

TOO_SHORT = (first(100), "100 readings, and a window has 2.56 s; record longer")


@pytest.mark.parametrize(("change", "said"), [*WRONG, TOO_SHORT])
def test_a_recording_without_a_label_ends_with_2_and_the_reason(
    here: Here,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    said: str,
) -> None:
    wrong = tmp_path / "day.csv"
    wrong.write_text(text(change(walk(700)), "t,ax,ay,az,gx,gy,gz\n"))
    done = here("--model", model, "--to", "json", wrong)
    assert done.stderr.splitlines()[-1].startswith(str(wrong))
    with wrong.open() as lines:  # a live sensor's first readings cannot be looked at before
        monkeypatch.setattr(sys, "stdin", lines)
        live = here("--model", model, "--to", "json", "-")
    for each in (done, live):
        assert (each.returncode, said in each.stderr.splitlines()[-1]) == (2, True), each.stderr
        assert not any(event["event"] == "label" for event in events(each))


def one_line(here: Here, *words: object) -> str:
    """What a command says that labels nothing."""
    done = here(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--smooth 3/2", "votes: expected 1 to 2, got 3"),
        ("--smooth many", "--smooth: expected K/N such as 2/3, got 'many'"),
        ("--hop 0", "hop: expected 1 to 4096, got 0"),
        ("--threads 0", "--threads: expected 1 to 64, got 0"),
        ("--longest-gap nan", "longest_gap_seconds: expected 0.05 to 10"),
    ],
)
def test_a_wrong_flag_is_one_line(here: Here, model: Path, words: str, said: str) -> None:
    assert said in one_line(here, "--model", model, *words.split(), "-")


def test_a_model_of_other_channels_takes_windows_alone(here: Here, tmp_path: Path) -> None:
    folder = export(tmp_path / "three", channels=("x", "y", "z"))
    assert "expected a model of the nine channels" in one_line(here, "--model", folder, "-")
    windows = np.zeros((4, 128, 3), np.float32)
    names = np.array(["STILL", "MOVING"] * 2)
    np.savez(tmp_path / "mine.npz", x_train=windows, y_train=names, x_test=windows, y_test=names)
    assert here("--model", folder, tmp_path / "mine.npz").returncode == 0


@pytest.mark.parametrize(("said", "stated"), table("recognise/models"))
def test_a_model_of_which_a_fact_is_unknown_or_another_takes_no_readings(
    here: Here, tmp_path: Path, said: str, stated: dict[str, Any]
) -> None:
    (tmp_path / "day.csv").write_text(text(walk(400)))
    folder = export(tmp_path / "model", **stated)
    assert said in one_line(here, "--model", folder, tmp_path / "day.csv")


def test_fast_readings_without_a_rate_are_warned_of(
    here: Here, model: Path, tmp_path: Path
) -> None:
    recording = tmp_path / "day.csv"
    recording.write_text(text(walk(1000, hz=200.0)))
    warned = here("--model", model, recording)
    assert "200 readings a second, the model has 50; give --source-hz 200" in warned.stderr
    assert "warning" not in here("--model", model, "--source-hz", 200, recording).stderr
