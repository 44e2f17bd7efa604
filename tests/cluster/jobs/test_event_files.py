"""TensorBoard's event files of a run, read back by TensorBoard's own reader."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.jobs.event_files import EventFiles
from core.status.events import EpochEnded, Event, FiguresComputed, Restored
from core.status.parts import Figures
from core.status.stream import EventStream
from tests.ran import python

READER = """
import json, sys, pathlib
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = {}
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    read = EventAccumulator(str(folder)).Reload()
    tags = read.Tags()["scalars"]
    found[folder.name] = {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in tags}
print(json.dumps(found))
"""


def read(folder: Path) -> dict[str, Any]:
    """Tags and their (step, value), by folder.

    In a process of its own: TensorBoard's imports warn.
    """
    said = python("-W", "ignore", "-c", READER, folder)
    return dict(json.loads(said.splitlines()[-1]))


def epoch(
    number: int, loss: float, stage: str = "train", validation: Figures | None = None
) -> EpochEnded:
    return EpochEnded(stage, number, loss, 0.5, 0.002, 1000.0, 0.0, validation)


def written(folder: Path, *events: Event) -> None:
    with EventFiles(folder) as files:
        for event in events:
            files.consume(event)


def test_what_a_run_wrote_is_what_tensorboard_reads(tmp_path: Path) -> None:
    averages = {
        "f1_macro": 0.5,
        "precision_macro": 0.25,
        "precision_weighted": 0.375,
        "recall_macro": 0.625,
        "recall_weighted": 0.875,
    }
    held_out = Figures(loss=0.75, accuracy=0.875, others={"mae": 2.0}, **averages)
    written(
        tmp_path,
        epoch(1, 1.5),
        epoch(2, 1.25, validation=held_out),
        epoch(3, 1.0),
        FiguresComputed("test", Figures(loss=0.5, accuracy=0.9375), epoch=3),
        epoch(1, 2.0, "refit"),
        FiguresComputed("validation", held_out, epoch=2),
    )
    written(tmp_path, Restored(1, 0), epoch(2, 8.0), epoch(3, 0.5))
    found = read(tmp_path)
    assert sorted(found) == ["refit-train", "test", "train", "validation"]
    again = [[1, 1.5], [2, 8.0], [3, 0.5]]
    assert found["train"]["loss"] == again, "the resumed run trained the second again"
    assert found["train"]["accuracy"][0] == [1, 0.5]
    assert found["train"]["rates/windows_per_second"][0] == [1, 1000.0]
    figures = {**averages, "loss": 0.75, "accuracy": 0.875, "figures/mae": 2.0}
    assert found["validation"] == {name: [[2, value]] for name, value in figures.items()}
    assert found["test"] == {"loss": [[3, 0.5]], "accuracy": [[3, 0.9375]]}
    assert found["refit-train"]["loss"] == [[1, 2.0]]


def test_files_that_cannot_be_written_end_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder belongs")
    heard: list[Event] = []
    with EventFiles(tmp_path / "tensorboard") as files:
        stream = EventStream(files.consume, heard.append)
        stream.emit(epoch(1, 1.0))
        stream.emit(epoch(2, 1.0))
    assert len(heard) == 2
    assert caplog.messages == ["EventFiles failed and gets no more events"]
