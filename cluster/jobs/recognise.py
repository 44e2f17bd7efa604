"""The job `recognise`: a long recording, labelled by the workers with the model of a run.

The coordinator reads, filters and cuts; a batch of windows goes to whichever worker is idle, so a
fast one gets more. A worker that dies has its batch done by another. The labels are written in the
order of time.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cluster.jobs.arithmetic import arithmetic_of_job
from cluster.jobs.calibration import WorkerSpeeds
from cluster.jobs.chaos_log import sabotage
from cluster.jobs.evaluate import answering
from cluster.jobs.labels_file import LABELS, LabelsFile
from cluster.jobs.lifecycle import Job
from cluster.jobs.model_of_job import refuse_too_many_servers
from cluster.jobs.recorded_as import recorded_as
from cluster.jobs.run_folder import RunFolder, model_run
from cluster.jobs.session import connected
from cluster.jobs.specs import float32, int32
from cluster.jobs.train_result import StoredModel, digest_of, load
from core.data.inputs import inputs_of
from core.data.signals import TWO_WAY
from core.engine.devices import HOST
from core.engine.messages import Item, Outcome
from core.engine.runtime import Traced, trace
from core.errors import UsageError
from core.inventory.arithmetic import LIBRARY
from core.inventory.training import TrainJob
from core.models.network import Network
from core.status.events import Advanced, Evaluated, StageBegan
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import PlacedVector, VectorState
from ps_node.shards import ParameterShards
from recognise.batches import PackedWindows, ResultRow, WindowPacker
from recognise.stream import InputFault, Settings
from recognise.whole import LongRecording

import tensorflow as tf  # isort: skip

log = logging.getLogger(__name__)

BATCH = 250
"""Windows of one dispatch: large enough that the pull does not count."""
FUNCTION = "recognise"
NOTED = ("gap", "clock_jump", "sparse", "implausible")
"""Faults with a row of their own; readings that are dropped are counted alone."""
MOST_NOTES = 10_000
MOST_GAPS = 100
"""The limit of the result, which names the first ones."""
UNIT = "% of the recording"
NOTHING_YET: Mapping[str, Any] = MappingProxyType(
    {
        "filters": None,
        "window_steps": None,
        "hop": None,
        "source_hz": None,
        "readings": 0,
        "bad_lines": 0,
        "faults": {},
        "gaps": [],
        "windows": 0,
        "unlabelled": 0,
        "totals": [],
        "band": [],
        "labels_file": None,
        "labels_sha256": None,
    }
)
"""What a result says before the recording is opened, in its order."""


def labelling(
    network: Network, shards: PlacedVector[Any], batches: WindowPacker, job: TrainJob
) -> Traced:
    """Return the workers' function: (samples, starts, standardization) to logits.

    They are float32 (BATCH, classes).
    """
    problem = network.problem
    steps, channels = problem.input_shape
    compute = answering(network, job)

    def label(samples: Any, starts: Any, standardization: Any) -> Any:
        trained, statistics, _ = shards.pull(exact=True)
        windows = tf.gather(samples, starts[:, None] + tf.range(steps)[None, :])
        standardized = (windows - standardization[0]) / standardization[1]
        return compute(trained, statistics, standardized)

    return trace(
        label,
        float32(batches.sample_rows, channels),
        int32(BATCH),
        float32(2, channels),
        name=FUNCTION,
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
        """Load the model, look at the recording.

        Raises UsageError if they do not fit together, and Cancelled.
        """
        job = self.inventory.jobs.recognise
        if job.data is None:
            raise UsageError(
                "--data: expected a recording to label: a CSV t,ax,ay,az,gx,gy,gz, or an .npz"
            )
        if job.format is not None and (job.acceleration, job.rotation) != ("g", "rad/s"):
            raise UsageError(
                "jobs.recognise.format: the format says the units: leave acceleration and rotation"
                " out"
            )
        run = self.recognised_by = model_run(job.run, Path(self.inventory.runs))
        wanted = "expected a built-in model of windows, got one"
        other = "name another run with --run"
        with self.cancel.at_once():
            model = self.model = load(run / "model", built_in=f"{wanted} of an app; {other}")
        network = model.network
        shape = network.problem.input_shape
        if len(shape) != 2:
            raise UsageError(
                f"{run}: {wanted} for inputs of {' x '.join(map(str, shape))}; {other}"
            )
        trained = recorded_as(run, model.standardization)
        self.filters = trained.filters
        settings = Settings(
            window_steps=shape[0],
            hop=job.hop or trained.stride or shape[0],
            acceleration_unit=job.acceleration,
            rotation_unit=job.rotation,
            signals=trained.signals,
            given=None if job.format is None else inputs_of(trained.signals),
        )
        with self.cancel.at_once():
            self.recording = LongRecording(job.data, settings, self.filters, job.format)
        if self.recording.settings.source_hz is not None:
            self.display.say(
                f"data: {self.recording.settings.source_hz:.0f} readings a second, low-passed to "
                f"{settings.sampling_hz:.0f} first"
            )
        refuse_too_many_servers(network, self.inventory)
        self._dropped: Counter[str] = Counter()
        self._gaps: list[dict[str, Any]] = []
        self._pending: dict[int, tuple[PackedWindows, int]] = {}
        self._speeds = WorkerSpeeds()
        self._notes = self._share = 0
        self._fault = self._implausible = ""

    def run(self, folder: RunFolder) -> None:
        """Label the recording.

        Raises ClusterError; when cancelled it ends with the labels by then.
        """
        assert self.model is not None
        assert self.recording is not None
        network = self.model.network
        settings = self.recording.settings
        job = self.inventory.jobs.train
        job = job.computed_by(arithmetic_of_job(job, network).name)
        channels = network.problem.channels
        batches = WindowPacker(BATCH, settings.window_steps, settings.hop, channels)
        with connected(self.inventory, self.cancel, self.metrics, self.display, (HOST,)) as session:
            shards = ParameterShards(
                network.layout, VectorState(self.model.vector), MomentumSGD(), session.places
            )
            if job.arithmetic == LIBRARY or network.has_library_layers:
                session.require_library()
            function = labelling(network, shards, batches, job)
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            runner = session.dispatch(job.deadline_seconds, saboteur)
            self.stream.emit(StageBegan("recognise", 100, UNIT))
            begin = time.monotonic()
            hop_seconds = settings.hop / settings.sampling_hz
            with LabelsFile(folder.path / LABELS, self.model.labels, hop_seconds) as self.file:
                for outcome in runner.run(
                    self._items(batches, function), lambda: self.cancel.asked
                ):
                    self._take(outcome)
            self.seconds = time.monotonic() - begin
        self._say()
        self._refuse_nothing()

    def _items(self, batches: WindowPacker, function: Traced) -> Iterator[Item]:
        assert self.model is not None
        assert self.recording is not None
        ids = count()
        packed = self.model.standardization.packed()

        def item(batch: PackedWindows) -> Item:
            number = next(ids)
            assert self.recording is not None
            self._pending[number] = (batch, int(100 * self.recording.progress.share))
            return Item(number, function, (batch.samples, batch.starts, packed))

        for found in self.recording.items():
            if isinstance(found, InputFault):
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

    def _note(self, fault: InputFault, batches: WindowPacker) -> None:
        self._dropped[fault.kind] += 1
        self._fault = self._fault or fault.detail
        if fault.kind == "implausible":
            self._implausible = self._implausible or fault.detail
        if fault.kind not in NOTED:
            return
        if fault.kind == "gap" and len(self._gaps) < MOST_GAPS:
            self._gaps.append({"after": fault.at, "detail": fault.detail})
        if self._notes < MOST_NOTES:
            self._notes += 1
            batches.note(ResultRow(fault.at, f"{fault.kind}: {fault.detail}"))

    def _take(self, outcome: Outcome) -> None:
        assert self.file is not None
        batch, share = self._pending.pop(outcome.item.id)
        self.file.add(outcome.item.id, batch.rows, np.asarray(outcome.value)[: batch.windows])
        self.stream.emit(Evaluated(outcome.task, batch.windows, outcome.seconds))
        self._share = max(self._share, share)  # answers come in any order
        self.stream.emit(Advanced(self._share))
        self._speeds.add(outcome.task, batch.windows, outcome.seconds)

    def _say(self) -> None:
        assert self.file is not None
        assert self.recording is not None
        file = self.file
        progress = self.recording.progress
        shares = ", ".join(
            f"{each['label']} {100 * each['share']:.0f} %"
            for each in file.describe_totals()
            if each["windows"]
        )
        if self.seconds:
            speed = f", {file.windows / self.seconds:,.0f} a second"
        else:
            speed = ""
        self.display.say(f"labels: {file.windows:,} windows{speed}{': ' * bool(shares)}{shares}")
        for line in progress.shown:
            self.display.say(f"    {line}; the line is left out")
        if progress.note:
            self.display.say(f"    in the recording: {progress.note}")
        wrong = [f"{times:,} {kind}" for kind, times in sorted(self._dropped.items())]
        wrong += [f"{progress.bad_lines:,} bad lines"] if progress.bad_lines else []
        if progress.bad_lines or self._dropped["implausible"]:
            # With --quiet too: the labels are not those of the whole recording.
            if self._implausible:
                why = f"; {self._implausible}"
            else:
                why = ""
            log.error("%s: in the recording: %s%s", self.recording.name, ", ".join(wrong), why)
        elif wrong:
            self.display.say(f"    in the recording: {', '.join(wrong)}")

    def _refuse_nothing(self) -> None:
        """Raise UsageError where all was read and no window has a label."""
        assert self.recording is not None
        if self.file is None or self.file.windows or not self.all_read:
            return
        settings = self.recording.settings
        progress = self.recording.progress
        seconds = settings.window_steps / settings.sampling_hz
        few = f"{progress.readings} readings, and a window has {seconds:.2f} s; record longer"
        raise UsageError(f"{self.recording.name}: nothing was labelled: {self._fault or few}")

    def complete(self) -> bool:
        """Whether the whole recording has its labels."""
        return self.all_read and not self._pending

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        found: dict[str, Any] = {
            **super().result(),
            "mode": self.inventory.jobs.train.mode,
            "recognised_by": None,
            "data": self.inventory.jobs.recognise.data,
            **NOTHING_YET,
            "seconds": self.seconds,
            "windows_per_second": None,
            "windows_per_second_by_worker": {},
            "model": None,
            "parameters_sha256": None,
        }
        if self.recognised_by:
            found["recognised_by"] = str(self.recognised_by)
        if self.recording:
            found |= self._of_recording(self.recording)
        if self.file:
            found |= _of_labels(self.file)
        if self.seconds:
            found["windows_per_second"] = found["windows"] / self.seconds
        if self.model:
            found["model"] = self.model.network.describe()
            found["parameters_sha256"] = digest_of(self.model.vector)
        return found

    def _of_recording(self, recording: LongRecording) -> dict[str, Any]:
        """Return what was read, and how."""
        settings = recording.settings
        progress = recording.progress
        return {
            "filters": self.filters,
            "window_steps": settings.window_steps,
            "hop": settings.hop,
            "source_hz": settings.source_hz,
            "readings": progress.readings,
            "bad_lines": progress.bad_lines,
            "faults": dict(sorted(self._dropped.items())),
            "gaps": self._gaps,
            "windows_per_second_by_worker": self._speeds.by_name(),
        }


def _of_labels(file: LabelsFile) -> dict[str, Any]:
    """Return what a file of labels holds."""
    return {
        "windows": file.windows,
        "unlabelled": file.unlabelled,
        "totals": file.describe_totals(),
        "band": file.describe_band(),
        "labels_file": LABELS,
        "labels_sha256": file.sha256,
    }
