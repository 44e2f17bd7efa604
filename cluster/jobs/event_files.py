"""TensorBoard's event files of a run, a consumer of its events, by TensorFlow's record writer.

A folder a split, `train`, `validation` and `test`, so that TensorBoard draws the same figure of all
in one chart. The step of a scalar is its epoch; a refit has folders of its own. A file is a
TFRecord of `Event` messages. No operation runs: what is written waits for no worker.
"""

import socket
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from core.ground.lazy import tf
from core.status.events import EpochEnded, Event, FiguresComputed, Restored
from core.status.parts import FIGURE_KEYS, Figures

FOLDER = "tensorboard"
VERSION = "brain.Event:2"
"""TensorBoard reads files that begin with it."""
REFIT = "refit"


class EventFiles(AbstractContextManager["EventFiles"]):
    """The files below one folder; each is made with its first figures.

    `consume` raises OSError, OpError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}
        self._restored_epochs: tuple[int, int] | None = None
        self._stage = "train"

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            with suppress(tf.errors.OpError):  # a full disk: the run has its result
                writer.close()

    def consume(self, event: Event) -> None:
        """Write the scalars of an event that has some."""
        match event:
            case Restored():
                self._restored_epochs = event.train_epochs, event.refit_epochs
            case EpochEnded():
                self._stage = event.stage
                rates = {
                    "learning_rate": event.rate,
                    "windows_per_second": event.windows_per_second,
                }
                trained = {"loss": event.loss, "accuracy": event.accuracy}
                self._write(
                    "train",
                    event.epoch,
                    {**trained, **{f"rates/{name}": rate for name, rate in rates.items()}},
                )
                if event.validation is not None:
                    self._write("validation", event.epoch, _scalars(event.validation))
            case FiguresComputed(split="test"):
                self._write("test", event.epoch or 0, _scalars(event.figures))

    def _write(self, split: str, epoch: int, scalars: Mapping[str, float | None]) -> None:
        if self._stage == REFIT:
            name = f"{REFIT}-{split}"
        else:
            name = split
        writer = self._writers.get(name) or self._begun(name)
        values = [
            tf.compat.v1.Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if value is not None
        ]
        _record(writer, step=epoch, summary=tf.compat.v1.Summary(value=values))
        writer.flush()

    def _begun(self, name: str) -> Any:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        # Of two coordinators of a run that begin in one second, the second must not overwrite.
        path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        writer = self._writers[name] = tf.io.TFRecordWriter(str(path))
        _record(writer, file_version=VERSION)
        if self._restored_epochs is not None:
            # The epochs behind the checkpoint are trained again: TensorBoard forgets what it had
            # from here on.
            epochs = self._restored_epochs[name.startswith(REFIT)]
            _record(
                writer,
                step=epochs + 1,
                session_log=tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START),
            )
        return writer


def _record(writer: Any, **content: Any) -> None:
    writer.write(tf.compat.v1.Event(wall_time=time.time(), **content).SerializeToString())


def _scalars(figures: Figures) -> dict[str, float | None]:
    standard_figures = {key: getattr(figures, key) for key in FIGURE_KEYS}
    return {
        **standard_figures,
        **{f"figures/{name}": value for name, value in figures.others.items()},
    }
