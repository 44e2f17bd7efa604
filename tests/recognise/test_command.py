"""`python -m recognise`: a process of its own, without TensorFlow, on recordings of each kind and on a live stream."""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recognise.command import main
from tests.data.makers import hapt_files, write_folder
from tests.recognise.exports import LABELS, export
from tests.recognise.guard import guarded
from tests.recognise.readings import Readings, walk

_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*([\w.]+)$", re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return guarded(tmp_path / "guard")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return export(tmp_path / "export")


Done = subprocess.CompletedProcess[str]


def recognise(environment: dict[str, str], *words: object, given: str = "") -> Done:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "recognise", *map(str, words)],
        env=environment, input=given, capture_output=True, text=True, timeout=60,
        cwd=environment["PYTHONPATH"].split(os.pathsep)[0],
    )  # fmt: skip


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process."""

    def run(*words: object) -> Done:
        code = main([str(word) for word in words])
        told = capsys.readouterr()
        return subprocess.CompletedProcess([str(word) for word in words], code, told.out, told.err)

    return run


Here = Callable[..., Done]


def still_then_walking(count: int = 1000) -> Readings:
    readings = walk(count)
    readings.acceleration[: count // 2] = [0.0, 0.0, 1.0]
    return readings


def text(readings: Readings, header: str = "") -> str:
    rows = np.concatenate([readings.times[:, None], readings.acceleration, readings.rotation], axis=1)
    return header + "".join(",".join(f"{value:.6f}" for value in row) + "\n" for row in rows)


def events(done: Done) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_recording_becomes_labels_and_no_tensorflow_is_imported(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text(text(still_then_walking(), "t,ax,ay,az,gx,gy,gz\n"))
    done = recognise({**environment, "PYTHONPROFILEIMPORTTIME": "1"}, "--model", model, tmp_path / "day.csv")
    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in _IMPORTED.findall(done.stderr)}
    assert {"numpy", "scipy", "recognise", "onnxruntime"} <= imported
    assert not imported & {"tensorflow", "keras"}
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["label"] for row in rows if row["event"] == "changed"] == list(LABELS)
    labels = [row["label"] for row in rows if row["event"] == "label"]
    assert labels[0] == ""
    assert labels[1:] == sorted(labels[1:], reverse=True)
    (changed,) = [row for row in rows if row["event"] == "changed" and row["detail"] == "from STILL"]
    assert 8.0 < float(changed["at"]) < 12.0
    assert re.search(r"day\.csv: 14 windows \(.*STILL .* %.*\); 2 changes; [0-9.]+ ms a window", done.stderr)


def test_a_live_stream_is_answered_while_it_goes_on(environment: dict[str, str], model: Path) -> None:
    lines = text(still_then_walking()).splitlines(keepends=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "recognise", "--model", str(model), "--to", "json", "--smooth", "1/1", "-"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(lines[:128]))
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [event["event"] for event in first] == ["changed", "label"], "one window is there, and it is labelled"
        rest, said = process.communicate("".join(lines[128:]), timeout=60)
    assert process.returncode == 0, said
    found = first + [json.loads(line) for line in rest.splitlines()]
    assert [event["label"] for event in found if event["event"] == "label"].count("MOVING") >= 6
    whole = recognise(environment, "--model", model, "--to", "json", "--smooth", "1/1", "-", given="".join(lines))
    assert events(whole) == found, "pauses between the lines change nothing"


def test_bad_lines_and_faults_are_told_one_line_each(here: Here, model: Path, tmp_path: Path) -> None:
    lines = text(walk(400)).splitlines()
    lines[100] = "what is this"
    lines[200] = lines[199]
    lines[300] = lines[300].replace(lines[300].split(",")[1], "nan", 1)
    (tmp_path / "day.csv").write_text("\n".join(lines))
    done = here("--model", model, "--to", "json", tmp_path / "day.csv")
    assert done.returncode == 2
    assert (
        "day.csv:101: expected seven numbers t,ax,ay,az,gx,gy,gz, got 'what is this'; the line is left out"
        in done.stderr
    )
    assert [event["kind"] for event in events(done) if event["event"] == "fault"] == ["doubled", "bad_value"]
    assert "1 bad_value; 1 doubled; 1 bad lines" in done.stderr


def test_a_model_of_two_way_filters_is_used_with_a_warning(here: Here, tmp_path: Path) -> None:
    recording = tmp_path / "day.csv"
    recording.write_text(text(walk(200)))
    warned = here("--model", export(tmp_path / "two-way", "two-way"), recording)
    assert warned.returncode == 0
    (line,) = [line for line in warned.stderr.splitlines() if line.startswith("warning: ")]
    assert "trained with two-way filters, a stream is filtered forwards only" in line
    assert "warning" not in here("--model", export(tmp_path / "causal"), recording).stderr


def test_files_of_hapt_are_read_with_their_companions(here: Here, model: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", hapt_files()) / "RawData"
    done = here("--model", model, "--to", "json", folder / "acc_exp01_user01.txt")
    assert done.returncode == 0, done.stderr
    assert sum(event["event"] == "label" for event in events(done)) == (2170 - 128) // 64 + 1
    companion = here("--model", model, folder / "gyro_exp01_user01.txt")
    assert (companion.returncode, "expected the acceleration" in companion.stderr) == (2, True)
    (folder / "gyro_exp01_user01.txt").unlink()
    alone = here("--model", model, folder / "acc_exp01_user01.txt")
    assert alone.returncode == 2
    assert "gyro_exp01_user01.txt: cannot be read (No such file or directory)" in alone.stderr


def test_windows_of_an_npz_are_labelled_and_compared(here: Here, model: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    windows = np.concatenate([np.zeros((5, 128, 9)), random.normal(0, 1, (5, 128, 9))]).astype(np.float32)
    names = np.repeat(np.array(LABELS), 5)
    np.savez(tmp_path / "mine.npz", x_train=windows, y_train=names, x_test=windows[:1], y_test=np.array(["MOVING"]))
    done = here("--model", model, "--to", "json", tmp_path / "mine.npz")
    assert done.returncode == 0, done.stderr
    assert [event["label"] for event in events(done)] == [*names, "STILL"]
    assert "11 windows" in done.stderr
    assert "0.9091 right" in done.stderr
    np.savez(tmp_path / "other.npz", x_train=windows[:, :9], y_train=names, x_test=windows[:, :9], y_test=names)
    other = here("--model", model, tmp_path / "other.npz")
    assert (other.returncode, "expected windows of (128, 9), as the model has, got (9, 9)" in other.stderr) == (2, True)


def test_what_is_wrong_is_one_line_and_the_other_files_are_labelled(here: Here, model: Path, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(text(walk(200)))
    done = here("--model", model, "--to", "json", tmp_path / "absent.csv", tmp_path, tmp_path / "good.csv")
    assert done.returncode == 2
    assert events(done)
    lines = done.stderr.splitlines()
    assert lines[0].endswith("absent.csv: cannot be read (No such file or directory); name a recording")
    assert "Is a directory" in lines[1]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--smooth", "3/2"], "votes: expected 1 to 2, got 3"),
        (["--smooth", "many"], "--smooth: expected K/N such as 2/3, got 'many'"),
        (["--hop", "9999"], "hop: expected 1 to 4096"),
        (["--hop", "0"], "hop: expected 1 to 4096, got 0"),
        (["--threads", "0"], "--threads: expected 1 to 64, got 0"),
        (["--longest-gap", "nan"], "longest_gap_seconds: expected 0.05 to 10"),
    ],
)
def test_a_wrong_flag_is_one_line(here: Here, model: Path, words: list[str], said: str) -> None:
    done = here("--model", model, *words, "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_model_of_other_channels_takes_windows_alone(here: Here, tmp_path: Path) -> None:
    folder = export(tmp_path / "three", channels=("x", "y", "z"))
    done = here("--model", folder, "-")
    assert done.returncode == 2
    assert "expected a model of the nine channels" in done.stderr
    windows, names = np.zeros((4, 128, 3), np.float32), np.array(["STILL", "MOVING"] * 2)
    np.savez(tmp_path / "mine.npz", x_train=windows, y_train=names, x_test=windows, y_test=names)
    assert here("--model", folder, tmp_path / "mine.npz").returncode == 0


def test_fast_readings_without_a_rate_are_warned_of(here: Here, model: Path, tmp_path: Path) -> None:
    recording = tmp_path / "day.csv"
    recording.write_text(text(walk(1000, hz=200.0)))
    warned = here("--model", model, recording)
    assert "200 readings a second, the model has 50; give --source-hz 200" in warned.stderr
    assert "warning" not in here("--model", model, "--source-hz", 200, recording).stderr


def test_a_reader_that_has_enough_ends_it_without_a_traceback(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text(text(walk(3000)))
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "recognise", "--model", str(model), "--hop", "1", str(tmp_path / "day.csv")],
        env=environment, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_one_line(environment: dict[str, str], model: Path, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(text(walk(3000)))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "recognise", "--model", str(model), str(tmp_path / "day.csv")],
            env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    line = "the labels cannot be written (No space left on device): write them to another place\n"
    assert (done.returncode, done.stderr) == (1, line)
