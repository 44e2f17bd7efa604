"""The job `recognise`: a long recording, labelled by the workers with the model of a run.

The coordinator reads, filters and cuts; a batch of windows goes to whichever worker is idle, so a fast one gets more. A
worker that dies has its batch done by another. The labels are written in the order of time.
"""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cluster.apps.networks import AppNetwork
from cluster.data.filters import CHANNELS, SAMPLE_RATE_HZ
from cluster.data.recordings import FILTERS, TWO_WAY
from cluster.engine.devices import HOST
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced, trace
from cluster.errors import UsageError
from cluster.jobs.evaluate import answering
from cluster.jobs.labels_file import LABELS, LabelsFile
from cluster.jobs.lifecycle import Job
from cluster.jobs.run_folder import RunFolder, newest_model, sabotage
from cluster.jobs.session import connected
from cluster.jobs.train_result import StoredModel, digest_of, load
from cluster.models.network import Network
from cluster.status.events import Advanced, Evaluated, StageBegan
from cluster.status.history import RESULT, json_object
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import PlacedVector, VectorState
from ps_node.shards import ParameterShards
from recognise.batches import Batch, Batches, Row
from recognise.stream import Fault, Settings
from recognise.whole import LongRecording

import tensorflow as tf  # isort: skip

BATCH = 250
"""Windows of one dispatch: large enough that the pull does not count."""
FUNCTION = "recognise"
NOTED = ("gap", "clock_jump", "sparse", "implausible")
"""Faults with a row of their own; readings that are dropped are counted alone."""
MOST_NOTES = 10_000
MOST_GAPS = 100
"""Of the result, which names the first ones."""
UNIT = "% of the recording"


def labelling(network: Network, shards: PlacedVector[Any], batches: Batches, *, compiled: bool) -> Traced:
    """The workers' function: (samples, starts, standardization) to logits, float32 (BATCH, classes)."""
    problem = network.problem
    steps, channels = problem.input_shape
    compute = answering(network, compiled=compiled)

    def label(samples: Any, starts: Any, standardization: Any) -> Any:
        trained, statistics, _ = shards.pull(exact=True)
        named = network.unpack(tf.concat([trained, statistics], 0))
        windows = tf.gather(samples, starts[:, None] + tf.range(steps)[None, :])
        return compute(named, (windows - standardization[0]) / standardization[1])

    return trace(
        label,
        tf.TensorSpec([batches.sample_rows, channels], tf.float32),
        tf.TensorSpec([BATCH], tf.int32),
        tf.TensorSpec([2, channels], tf.float32),
    )


class RecogniseRun(Job):
    """One run of the job."""

    name = "recognise"

    recognised_by: Path | None = None
    model: StoredModel | None = None
    recording: LongRecording | None = None
    file: LabelsFile | None = None
    filters = TWO_WAY
    all_read = False
    seconds = 0.0

    def prepare(self) -> None:
        """Load the model, look at the recording; raises UsageError if they do not fit together, and Cancelled."""
        job = self.inventory.jobs.recognise
        if job.data is None:
            raise UsageError("--data: expected a recording to label: a CSV t,ax,ay,az,gx,gy,gz, or an .npz")
        run = self.recognised_by = Path(job.run) if job.run else newest_model(Path(self.inventory.runs))
        with self.cancel.at_once():
            model = self.model = load(run / "model")
        network = model.network
        shape = network.problem.input_shape
        if isinstance(network, AppNetwork) or len(shape) != 2 or shape[1] != len(CHANNELS):
            what = "of an app" if isinstance(network, AppNetwork) else f"for inputs of {' x '.join(map(str, shape))}"
            raise UsageError(
                f"{run}: expected a built-in model of the nine channels {CHANNELS[0]} to {CHANNELS[-1]}, got one "
                f"{what}; name another run with --run"
            )
        self.filters, stride = self._as_trained(run)
        settings = Settings(
            window_steps=shape[0], hop=job.hop or stride or shape[0], acceleration_unit=job.acceleration,
            rotation_unit=job.rotation,
        )  # fmt: skip
        with self.cancel.at_once():
            self.recording = LongRecording(job.data, settings, self.filters)
        if self.recording.settings.source_hz is not None:
            self.display.say(f"data: {self.recording.settings.source_hz:.0f} readings a second, low-passed to "
                             f"{SAMPLE_RATE_HZ:.0f} first")  # fmt: skip
        if self.inventory.jobs.train.facts.needs_roles():
            try:
                network.layout.shards(len(self.inventory.of_role("ps")))
            except ValueError as refused:
                raise UsageError(f"nodes: {refused}") from None
        self._dropped: Counter[str] = Counter()
        self._gaps: list[dict[str, Any]] = []
        self._pending: dict[int, tuple[Batch, int]] = {}
        self._by_worker: dict[int, tuple[int, float]] = {}
        self._notes = self._share = 0

    def _as_trained(self, run: Path) -> tuple[str, int]:
        """How the run's recordings were filtered, and its stride (0 if it does not say)."""
        found = json_object(run / RESULT) or {}
        dataset, settings = found.get("dataset") or {}, found.get("settings") or {}
        data = settings.get("data") or {} if isinstance(settings, dict) else {}
        filters = dataset.get("filters") if isinstance(dataset, dict) else None
        if filters not in FILTERS:
            filters = data.get("filters") if data.get("filters") in FILTERS else TWO_WAY
            self.display.say(f"{run}: does not say how its recordings were filtered; {filters} is taken")
        stride = data.get("window_stride")
        return str(filters), stride if isinstance(stride, int) and 0 < stride <= 4096 else 0

    def run(self, folder: RunFolder) -> None:
        """Label the recording. Raises ClusterError; when cancelled it ends with the labels by then."""
        assert self.model is not None
        assert self.recording is not None
        network, settings, job = self.model.network, self.recording.settings, self.inventory.jobs.train
        batches = Batches(BATCH, settings.window_steps, settings.hop, len(CHANNELS))
        with connected(self.inventory, self.cancel, self.metrics, self.display, (HOST,)) as session:
            shards = ParameterShards(network.layout, VectorState(self.model.vector), MomentumSGD(), session.places)
            function = labelling(network, shards, batches, compiled=job.compiled)
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            runner = session.dispatch({FUNCTION: function}, job.deadline_seconds, saboteur)
            self.stream.emit(StageBegan("recognise", 100, UNIT))
            begin = time.monotonic()
            hop_seconds = settings.hop / settings.sampling_hz
            with LabelsFile(folder.path / LABELS, self.model.labels, hop_seconds) as self.file:
                for outcome in runner.run(self._items(batches), lambda: self.cancel.asked):
                    self._take(outcome)
            self.seconds = time.monotonic() - begin
        self._say()

    def _items(self, batches: Batches) -> Iterator[Item]:
        assert self.model is not None
        assert self.recording is not None
        ids, packed = count(), self.model.standardization.packed()

        def item(batch: Batch) -> Item:
            number = next(ids)
            assert self.recording is not None
            self._pending[number] = (batch, int(100 * self.recording.progress.share))
            return Item(number, FUNCTION, (batch.samples, batch.starts, packed))

        for found in self.recording.items():
            if isinstance(found, Fault):
                self._note(found, batches)
                continue
            for batch in batches.add(found):
                yield item(batch)
        last = batches.taken()
        if last.windows:
            yield item(last)
        elif last.rows:
            assert self.file is not None
            self.file.add(next(ids), last.rows, np.empty((0, len(self.model.labels)), np.float32))
        self.all_read = True

    def _note(self, fault: Fault, batches: Batches) -> None:
        self._dropped[fault.kind] += 1
        if fault.kind not in NOTED:
            return
        if fault.kind == "gap" and len(self._gaps) < MOST_GAPS:
            self._gaps.append({"after": fault.at, "detail": fault.detail})
        if self._notes < MOST_NOTES:
            self._notes += 1
            batches.note(Row(fault.at, f"{fault.kind}: {fault.detail}"))

    def _take(self, outcome: Outcome) -> None:
        assert self.file is not None
        batch, share = self._pending.pop(outcome.item.id)
        self.file.add(outcome.item.id, batch.rows, np.asarray(outcome.value)[: batch.windows])
        self.stream.emit(Evaluated(outcome.task, batch.windows, outcome.seconds))
        self._share = max(self._share, share)  # answers come in any order
        self.stream.emit(Advanced(self._share))
        # The first batch of a worker also sets its graph up: it says nothing about speed.
        first = outcome.task not in self._by_worker
        windows, seconds = self._by_worker.get(outcome.task, (0, 0.0))
        self._by_worker[outcome.task] = (0, 0.0) if first else (windows + batch.windows, seconds + outcome.seconds)

    def _say(self) -> None:
        assert self.file is not None
        assert self.recording is not None
        file, progress = self.file, self.recording.progress
        shares = ", ".join(f"{each['label']} {100 * each['share']:.0f} %" for each in self._totals() if each["windows"])
        speed = f", {file.windows / self.seconds:,.0f} a second" if self.seconds else ""
        self.display.say(f"labels: {file.windows:,} windows{speed}{': ' * bool(shares)}{shares}")
        for line in progress.shown:
            self.display.say(f"    {line}; the line is left out")
        wrong = [f"{times:,} {kind}" for kind, times in sorted(self._dropped.items())]
        wrong += [f"{progress.bad_lines:,} bad lines"] if progress.bad_lines else []
        if wrong:
            self.display.say(f"    in the recording: {', '.join(wrong)}")

    def _totals(self) -> list[dict[str, Any]]:
        if self.file is None or self.model is None or self.recording is None:
            return []
        hop_seconds = self.recording.settings.hop / self.recording.settings.sampling_hz
        return [
            {
                "label": label,
                "windows": total.windows,
                "share": total.windows / max(1, self.file.windows),
                "seconds": total.windows * hop_seconds,
                "confidence": total.confidence / total.windows if total.windows else None,
            }
            for label, total in zip(self.model.labels, self.file.totals, strict=True)
        ]

    def complete(self) -> bool:
        """Whether the whole recording has its labels."""
        return self.all_read and not self._pending

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        model, recording, file = self.model, self.recording, self.file
        settings = recording.settings if recording else None
        windows = file.windows if file else 0
        return {
            **super().result(),
            "mode": self.inventory.jobs.train.mode,
            "recognised_by": str(self.recognised_by) if self.recognised_by else None,
            "data": self.inventory.jobs.recognise.data,
            "filters": self.filters if recording else None,
            "window_steps": settings.window_steps if settings else None,
            "hop": settings.hop if settings else None,
            "source_hz": settings.source_hz if settings else None,
            "readings": recording.progress.readings if recording else 0,
            "bad_lines": recording.progress.bad_lines if recording else 0,
            "faults": dict(sorted(self._dropped.items())) if recording else {},
            "gaps": self._gaps if recording else [],
            "windows": windows,
            "unlabelled": file.unlabelled if file else 0,
            "totals": self._totals(),
            "band": self._band(),
            "labels_file": LABELS if file else None,
            "labels_sha256": file.sha256 if file else None,
            "seconds": self.seconds,
            "windows_per_second": windows / self.seconds if self.seconds else None,
            "windows_per_second_by_worker": self._speeds() if recording else {},
            "model": model.network.describe() if model else None,
            "parameters_sha256": digest_of(model.vector) if model else None,
        }

    def _band(self) -> list[dict[str, Any]]:
        if self.file is None or self.model is None:
            return []
        spans = self.file.band.spans()
        return [
            {"label": self.model.labels[span.label], "begin_seconds": span.begin, "end_seconds": span.end}
            for span in spans
        ]

    def _speeds(self) -> dict[str, float]:
        found = sorted(self._by_worker.items())
        return {f"worker:{task}": windows / seconds for task, (windows, seconds) in found if seconds}
