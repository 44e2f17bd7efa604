"""TensorBoard's event files of a run, read back by TensorBoard's own reader."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.jobs.run_logs import EventFiles
from core.status.events import Event, EventStream
from tests.cluster.jobs.kit import events_of
from tests.ran import python
from tests.tables import table

TOLD = table("cluster/jobs/events", "tensorboard")
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


def written(folder: Path, *events: Event) -> None:
    with EventFiles(folder) as files:
        for event in events:
            files.consume(event)


def test_what_a_run_wrote_is_what_tensorboard_reads(tmp_path: Path) -> None:
    for row in ("first", "resumed"):
        written(tmp_path, *events_of(TOLD[row]))
    assert read(tmp_path) == TOLD["found"], "the resumed run trained the second epoch again"


def test_files_that_cannot_be_written_end_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder belongs")
    heard: list[Event] = []
    with EventFiles(tmp_path / "tensorboard") as files:
        stream = EventStream(files.consume, heard.append)
        for event in events_of(TOLD["first"][:2]):
            stream.emit(event)
    assert len(heard) == 2
    assert caplog.messages == ["EventFiles failed and gets no more events"]
