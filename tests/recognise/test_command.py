"""`python -m recognise` without TensorFlow, on recordings and on a live stream."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.core.data.makers import hapt_files, write_folder
from tests.hang import HANG_SECONDS
from tests.recognise.command import Done, Here, events, recognise, still_then_walking, text
from tests.recognise.exports import LABELS, export
from tests.recognise.guard import guarded
from tests.recognise.readings import walk

_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s*([\w.]+)$", re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return guarded(tmp_path / "guard")


def test_a_recording_becomes_labels_and_no_tensorflow_is_imported(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text(text(still_then_walking(), "t,ax,ay,az,gx,gy,gz\n"))
    done = recognise(
        {**environment, "PYTHONPROFILEIMPORTTIME": "1"}, "--model", model, tmp_path / "day.csv"
    )
    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in _IMPORTED.findall(done.stderr)}
    assert {"numpy", "scipy", "recognise", "onnxruntime"} <= imported
    assert not imported & {"tensorflow", "keras"}
    rows = list(csv.DictReader(done.stdout.splitlines()))
    changes = [row for row in rows if row["event"] == "changed"]
    assert [row["label"] for row in changes] == list(LABELS)
    assert changes[1]["detail"] == "from STILL"
    assert 8.0 < float(changes[1]["at"]) < 12.0
    labels = [row["label"] for row in rows if row["event"] == "label"]
    assert labels[0] == ""
    assert labels[1:] == sorted(labels[1:], reverse=True)
    told = r"day\.csv: 14 windows \(.*STILL .* %.*\); 2 changes; [0-9.]+ ms a window"
    assert re.search(told, done.stderr)


def test_a_live_stream_is_answered_while_it_goes_on(
    environment: dict[str, str], model: Path
) -> None:
    lines = text(still_then_walking()).splitlines(keepends=True)
    words = ("--to", "json", "--smooth", "1/1", "-")
    process = subprocess.Popen(
        [*(sys.executable, "-m", "recognise", "--model", model), *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(lines[:128]))
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [event["event"] for event in first] == ["changed", "label"], "of one window"
        rest, said = process.communicate("".join(lines[128:]), timeout=HANG_SECONDS)
    assert process.returncode == 0, said
    found = first + [json.loads(line) for line in rest.splitlines()]
    assert [event["label"] for event in found if event["event"] == "label"].count("MOVING") >= 6
    whole = recognise(environment, "--model", model, *words, given="".join(lines))
    assert events(whole) == found, "pauses between the lines change nothing"


def test_bad_lines_and_faults_are_told_one_line_each(
    here: Here, model: Path, tmp_path: Path
) -> None:
    readings = walk(400)
    readings.acceleration[300, 0] = np.nan
    lines = text(readings).splitlines()
    lines[100] = "what is this"
    lines[200] = lines[199]
    (tmp_path / "day.csv").write_text("\n".join(lines))
    done = here("--model", model, "--to", "json", tmp_path / "day.csv")
    assert done.returncode == 2
    expected = (
        "day.csv:101: expected seven numbers t,ax,ay,az,gx,gy,gz, got 'what is this'; the line is"
        " left out"
    )
    assert expected in done.stderr
    found = [event["kind"] for event in events(done) if event["event"] == "fault"]
    assert found == ["doubled", "bad_value"]
    assert "1 bad_value; 1 doubled; 1 bad lines" in done.stderr


def test_a_model_of_two_way_filters_is_used_with_a_warning(here: Here, tmp_path: Path) -> None:
    recording = tmp_path / "day.csv"
    recording.write_text(text(walk(200)))
    warned = here("--model", export(tmp_path / "two-way", "two-way"), recording)
    assert warned.returncode == 0
    (line,) = [line for line in warned.stderr.splitlines() if line.startswith("warning: ")]
    assert "trained with two-way filters, a stream is filtered forwards only" in line
    assert "warning" not in here("--model", export(tmp_path / "causal"), recording).stderr


def test_files_of_hapt_are_read_with_their_companions(
    here: Here, model: Path, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "set", hapt_files()) / "RawData"
    path = folder / "acc_exp01_user01.txt"
    companion = folder / "gyro_exp01_user01.txt"
    np.savetxt(path, np.loadtxt(path) + np.array([0.0, 0.0, 1.0]))
    done = here("--model", model, "--to", "json", path)
    assert done.returncode == 0, done.stderr
    assert sum(event["event"] == "label" for event in events(done)) == (2170 - 128) // 64 + 1
    refused(here("--model", model, companion), "expected the acceleration")
    companion.unlink()
    alone = "gyro_exp01_user01.txt: cannot be read (No such file or directory)"
    refused(here("--model", model, path), alone)


def refused(done: Done, words: str) -> None:
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_windows_of_an_npz_are_labelled_and_compared(
    here: Here, model: Path, tmp_path: Path
) -> None:
    windows = np.random.default_rng(3).normal(0, 1, (10, 128, 9)).astype(np.float32)
    windows[:5] = [0.01] * 8 + [1.0]
    names = np.repeat(LABELS, 5)

    def labelled(test: int = 1, steps: int = 128, **more: np.ndarray) -> Done:
        given = windows[:, :steps]
        parts = {"x_train": given, "x_test": given[:test], "y_train": names}
        np.savez(tmp_path / "mine.npz", **parts, y_test=names[-test:], **more)  # type: ignore[arg-type]
        return here("--model", model, "--to", "json", tmp_path / "mine.npz")

    done = labelled()
    assert done.returncode == 0, done.stderr
    assert [event["label"] for event in events(done)] == [*names, "STILL"]
    assert "11 windows" in done.stderr
    assert "0.9091 right" in done.stderr
    refused(labelled(10, steps=9), "of (128, 9), as the model has, got (9, 9)")
    other = labelled(10, sampling_hz=np.array(100.0))
    refused(other, "sampling_hz: expected those of the model, 50.0, got 100.0")
    windows[2, :, 3:6] *= 180 / np.pi * 100
    degrees = labelled()
    assert [event["row"] for event in events(degrees) if event["event"] == "fault"] == [2]
    assert "warning: " in degrees.stderr
    assert "1 of 11 windows got no label: mean rotation" in degrees.stderr


def test_what_is_wrong_is_one_line_and_the_other_files_are_labelled(
    here: Here, model: Path, tmp_path: Path
) -> None:
    good = tmp_path / "good.csv"
    good.write_text(text(walk(200)))
    done = here("--model", model, "--to", "json", tmp_path / "absent.csv", tmp_path, good)
    assert done.returncode == 2
    assert events(done)
    absent, folder, _ = done.stderr.splitlines()
    assert absent.endswith(
        "absent.csv: cannot be read (No such file or directory); name a recording"
    )
    assert "Is a directory" in folder


def test_a_reader_that_has_enough_ends_it_without_a_traceback(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text(text(walk(3000)))
    read, write = os.pipe()
    os.close(read)
    words = ("--model", model, "--hop", "1", tmp_path / "day.csv")
    done = recognise(environment, *words, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_one_line(environment: dict[str, str], model: Path, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(text(walk(3000)))
    with open("/dev/full", "wb") as full:
        done = recognise(environment, "--model", model, tmp_path / "day.csv", stdout=full.fileno())
    line = "the labels cannot be written (No space left on device): write them to another place\n"
    assert (done.returncode, done.stderr) == (1, line)
