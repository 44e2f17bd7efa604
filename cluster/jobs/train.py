"""The job `train`: data, split, fit, choose, refit if asked, one look at the test set, the model."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster.consistency.speeds import Speeds
from cluster.data import split_validation
from cluster.engine.chaos import ChaosPlan
from cluster.engine.lost import ParameterServerLost
from cluster.errors import UsageError
from cluster.inventory import Inventory
from cluster.inventory.micro_batches import MicroBatches, chosen
from cluster.inventory.training import TrainJob
from cluster.jobs import checkpointing, evaluation, training
from cluster.jobs.batches import Plan, Rows
from cluster.jobs.calibration import latest, tasks_of
from cluster.jobs.cancel import Cancel
from cluster.jobs.chaos_log import sabotage
from cluster.jobs.checkpointing import Resumption, RunKeeper
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.evaluation import Evaluator, Runner
from cluster.jobs.figures import Figures
from cluster.jobs.fit import Fit
from cluster.jobs.job_metrics import JobMetrics
from cluster.jobs.model_store import store
from cluster.jobs.modes.mode import Setup, mode_of, policy_of, wire_codecs
from cluster.jobs.observer import EpochReport, Observers
from cluster.jobs.progress import Display, told
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.session import Session
from cluster.jobs.solo import Solo
from cluster.jobs.sources import load_dataset
from cluster.jobs.train_result import TrainReport, describe_figures
from cluster.jobs.training import Hooks, Trainer
from cluster.jobs.training_metrics import TrainingMetrics
from cluster.models.network import build
from ps_node.shard import Totals, VectorState
from worker_node.recordings import Standardization, WorkerWindows

log = logging.getLogger(__name__)


def reproducible(job: TrainJob, processors: set[str | None]) -> bool | None:
    """Whether another run would end with the same bits, on any number of nodes of this kind; None if nobody knows."""
    if not job.facts.same_bits(job.mode_options):
        return False
    if None in processors:
        return None
    if len(processors) > 1:
        log.warning(
            "the nodes have different processors (%s): who computes what changes the last bits of the result",
            ", ".join(sorted(filter(None, processors))),
        )
    return len(processors) == 1


class TrainRun:
    """One run of the job."""

    name = "train"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, resumed: Path | None = None,
        chaos: ChaosPlan | None = None,
    ) -> None:  # fmt: skip
        """`resumed`: the folder of the run to go on with. `chaos`: faults to inject."""
        self.chaos = chaos
        self.inventory, self.job, self.resumed = inventory, inventory.jobs.train, resumed
        self.display, self.cancel = display, cancel
        self.report = TrainReport(inventory)
        self.metrics = CoordinatorMetrics(inventory.shared_folder, display.busy)
        registry = self.metrics.registry
        self._job_metrics = JobMetrics(registry, self.job.mode, self.job.model.name)
        pull, push = wire_codecs(self.job.codec)
        of_training = TrainingMetrics(registry, pull.name, push.name, self.job.checkpoint.every_seconds)
        self.observers = Observers(self.metrics.told(self._job_metrics, of_training))
        self._told: list[tuple[int, str]] = []
        """What the preparation has to say, for the run's log, which is not open yet then."""

    def prepare(self) -> None:
        """Prepare the recordings, build the network, refuse what cannot work. Raises ClusterError, Cancelled."""
        job = self.job
        if self.chaos is not None and not job.facts.needs_roles():
            raise UsageError(
                f"--chaos: jobs.train.mode is {job.mode}, which has no workers to strike: take another mode"
            )
        self.dataset = self.report.dataset = load_dataset(self.inventory, self.display, self.cancel, self.observers)
        known = slice(self.dataset.train_windows)
        self.train_rows, self.validation_rows = split_validation(
            self.dataset.subjects()[known], job.validation_subjects, job.seed, self.dataset.classes()[known]
        )
        self._plan(self.train_rows)
        self.network = self.report.network = build(
            job.model,
            window_steps=self.dataset.window_steps,
            channels=self.dataset.channels,
            classes=len(self.dataset.labels),
            keep_probability=job.keep_probability,
        )
        try:
            self.network.layout.shards(len(self.inventory.of_role("ps")) if job.facts.needs_roles() else 1)
        except ValueError as problem:
            raise UsageError(f"nodes: {problem}") from None
        self.resumption = self._resumption() if self.resumed else None
        self.standardization = Standardization.of(self.dataset, self.train_rows)
        self.cancel.check()

    def _resumption(self) -> Resumption | None:
        assert self.resumed is not None
        found, refused = checkpointing.resume(self.resumed, self.job, self.dataset.sha256, self.network.layout.size)
        self._told += [(logging.WARNING, line) for line in refused]
        if found is None:
            lost = checkpointing.applied_before(self.resumed)
            line = f"{self.resumed}: no checkpoint: {lost} updates run again, from the beginning"
            self._told.append((logging.WARNING, line))
            self.report.rolled_back = lost
            return None
        self._told.append((logging.INFO, f"{self.resumed}: goes on from update {found.state.next_id}"))
        self.report.resume(found)
        return found

    def run(self, folder: RunFolder) -> None:
        """Train, choose, test, store. Raises ClusterError; when cancelled it ends with what there is by then."""
        dataset, network = self.dataset, self.network
        for level, line in self._told:
            log.log(level, "%s", line)
        alone = not self.job.facts.needs_roles()
        opened = (
            Solo(self.inventory, self.cancel, self.metrics)
            if alone
            else Session(self.inventory, self.cancel, self.observers, self.metrics, self.display)
        )
        with opened as session:
            job = self._cut(session)
            begun = self.resumption
            folder.keep_events(begun.event_lines if begun else 0)
            state = begun.state if begun else VectorState(network.initial(job.seed))
            windows = WorkerWindows(dataset)
            calibration = latest(Path(self.inventory.runs), self.inventory.cluster)
            self._job_metrics.calibration(calibration or {})
            speeds = Speeds(tasks_of(calibration))
            policy = policy_of(job, speeds)
            functions: dict[str, Any] = {}
            places = dict(enumerate(session.places))
            saboteur, self.report.chaos = sabotage(self.chaos, folder.path, len(session.places), self.observers)
            runner: Runner | None = None
            if job.facts.parameters == "workers" and isinstance(session, Session):
                # Its functions span the workers that are there: known, and traced, only once they have joined.
                runner = dispatcher = session.dispatch(functions, job.deadline_seconds, saboteur)
                places = session.worker_places(dispatcher)
            with self.display.busy("placing the parameters, tracing the network"):
                mode = mode_of(Setup(job, network, windows, state, places, policy, session.workers, speeds))
                functions |= mode.functions
                functions[evaluation.FUNCTION] = evaluation.traced(network, windows, mode.shards)
            runner = runner or session.dispatch(functions, job.deadline_seconds, saboteur)
            self._say_what(session)
            self.report.same_bits = reproducible(job, session.processors())
            self._totals = mode.shards.totals
            self._tell_totals()
            keeper = RunKeeper(
                folder.path, job, dataset.sha256, mode.shards, lambda: self._facts(folder), self.report.fits,
                self.report.wire, self.observers,
            )  # fmt: skip
            evaluator = Evaluator(runner, len(dataset.labels))
            with keeper:
                trainer = Trainer(
                    runner,
                    mode,
                    job,
                    self.cancel,
                    self.observers,
                    self.report.wire,
                    keeper,
                    classes=len(dataset.labels),
                )
                try:
                    used = self._fits(trainer, evaluator, mode.shards, folder, session.server_traffic)
                finally:
                    self.report.memories_lost = mode.memories_lost
                    with suppress(ParameterServerLost):
                        self.report.totals = self._tell_totals()
                if self.cancel.asked and trainer.consistent:
                    keeper.keep()
            if not self.report.fits[0].scheduled:
                return
            self.report.used = used
            rows = training.test_rows(dataset.train_windows, dataset.test_windows)
            mode.shards.reset(used.vector)
            # Before the test: whatever happens there, the training was not for nothing.
            store(folder.path / "model", network, used.vector, self.standardization, dataset.labels, dataset.sha256)
            chunks = -(-len(rows) // evaluation.CHUNK)
            self.observers.stage("test", chunks, "chunks")
            bar = self.display.bar("test", chunks)
            # A cancelled run is tested too, which makes a result of it, but only while the person still waits.
            advance = told(bar, self.observers)
            final, confusion = evaluator(rows, self.standardization, advance, self.cancel.overdue)
            bar.close()
            if int(confusion.sum()) < len(rows):
                self.display.say("test: broken off, no figures; `fab job evaluate` makes up for it")
                return
            self.report.final, self.report.confusion = final, confusion
            if final is not None:
                self.observers.figures("test", final, dataset.labels, confusion, used.epoch)
                self.display.say(f"test: {final.line()}")

    def _cut(self, session: Session | Solo) -> TrainJob:
        """The job with a number of micro-batches: what the user or the run says, or what suits these workers."""
        if isinstance(self.job.micro_batches, int):
            found = MicroBatches(self.job.micro_batches, "jobs.train.micro_batches says so")
        elif self.resumption is not None:
            found = MicroBatches(self.resumption.micro_batches, "the run began with it")
        else:
            found = chosen(self.job.mode, self.job.batch_size, session.workers, session.worker_cores())
        self.report.micro_batches = found
        self.job = self.job.cut_into(found.number)
        self.observers.cut(found.number)
        return self.job

    def _tell_totals(self) -> Totals:
        totals = self._counted()
        self.observers.totals(totals, self.report.rolled_back, self.report.resumptions)
        return totals

    def _counted(self) -> Totals:
        """Totals of the whole surviving history, what came before the checkpoint included."""
        now = self._totals()
        before = self.resumption.totals if self.resumption else None
        return replace(
            now,
            applied=now.applied + (before.applied if before else 0),
            duplicates_dropped=now.duplicates_dropped + (before.duplicates_dropped if before else 0),
        )

    def _facts(self, folder: RunFolder) -> dict[str, Any]:
        totals = self._counted()
        return {
            "applied": totals.applied,
            "duplicates_dropped": totals.duplicates_dropped,
            "rolled_back": self.report.rolled_back,
            "resumptions": self.report.resumptions,
            "event_lines": folder.event_lines,
            "elapsed_seconds": self.report.elapsed_seconds(),
        }

    def complete(self) -> bool:
        """Whether every epoch was trained, of the refit too if one was asked for, and the model tested."""
        used, report = self.report.used, self.report
        refitted = report.refitted or not self.job.refit or not len(self.validation_rows)
        return report.final is not None and used is not None and used.epochs_done == self.job.epochs and refitted

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        return self.report.describe()

    def _fits(
        self, trainer: Trainer, evaluator: Evaluator, shards: Any, folder: RunFolder, traffic: Any
    ) -> Fit:  # fmt: skip
        """The fit that chooses the epoch, and the refit if one is asked for; the one to be used."""
        fits = self.report.fits
        if not fits:
            fits.append(Fit(shards.read()))
        chosen = fits[0]
        if len(fits) == 1:
            self._fit(trainer, evaluator, folder, traffic, chosen, self.train_rows, self.validation_rows, "train")
        if not self.job.refit or not len(self.validation_rows) or self.cancel.asked:
            return chosen
        every_row = np.arange(self.dataset.train_windows, dtype=np.int32)
        before, self.standardization = self.standardization, Standardization.of(self.dataset, every_row)
        if len(fits) == 1:
            initial = self.network.initial(self.job.seed)
            shards.reset(initial)
            fits.append(Fit(initial, first_id=chosen.first_id + self._plan(self.train_rows).updates))
        refit = fits[1]
        self._fit(trainer, evaluator, folder, traffic, refit, every_row, every_row[:0], "refit")
        if refit.epochs_done < self.job.epochs:
            # A refit that was cut short is a worse model than the finished one it was to replace.
            self.standardization = before
            return chosen
        self.report.refitted = True
        return refit

    def _plan(self, rows: Rows | Any) -> Plan:
        job = self.job
        return Plan(
            rows.astype(np.int32), job.batch_size, job.epochs, job.replay_worst_batches, job.seed,
            job.facts.batches(job.mode_options),
        )  # fmt: skip

    def _fit(
        self, trainer: Trainer, evaluator: Evaluator, folder: RunFolder, traffic: Any, fit: Fit, rows: Any,
        validation: Any, stage: str,
    ) -> None:  # fmt: skip
        plan = self._plan(rows)
        bar = self.display.bar(stage, plan.updates)
        self.observers.stage(stage, plan.updates, "updates")
        latest: list[str] = [""]

        def advance(done: int, loss: float) -> None:
            epoch = fit.cursor.epoch
            self.observers.advanced(epoch * plan.per_epoch + done)
            bar.advance(
                epoch * plan.per_epoch + done - bar.done, f"epoch {epoch + 1}/{plan.epochs}  loss {loss:.2f}{latest[0]}"
            )

        def report(line: EpochReport) -> None:
            validation_accuracy = line.validation.accuracy if line.validation else None
            shown = "" if validation_accuracy is None else f"  validation accuracy {validation_accuracy:.4f}"
            valid = "" if validation_accuracy is None else f"  val. {validation_accuracy:.3f}"
            latest[0] = f"  {line.windows_per_second:,.0f} windows/s{valid}"
            self.observers.epoch(stage, line)
            self._tell_totals()
            folder.event(stage=stage, **{**asdict(line), "validation": describe_figures(line.validation)})
            self.display.say(
                f"{stage}: epoch {line.epoch:>3}/{plan.epochs}  {line.windows_per_second:>6,.0f} windows/s  "
                f"loss {line.loss:.4f}  accuracy {line.accuracy:.4f}{shown}  {line.seconds_left:.0f} s left"
            )

        validate = training.evaluator_for(
            evaluator, validation, self.standardization, self.cancel,
            lambda found, confusion: self.observers.figures(
                "validation", found, self.dataset.labels, confusion, fit.cursor.epoch + 1
            ),
        )  # fmt: skip
        shown = None if validate is None else self._shown(validate)
        trainer.fit(fit, plan, self.standardization, shown, Hooks(report, advance, traffic))
        bar.close()

    def _shown(self, validate: Callable[[], Figures | None]) -> Callable[[], Figures | None]:
        def shown() -> Figures | None:
            self.observers.validating(True)
            with self.display.busy("validation"):
                found = validate()
            self.observers.validating(False)
            return found

        return shown

    def _say_what(self, session: Session | Solo) -> None:
        described = self.network.describe()
        servers, workers = len(session.places), session.workers
        where = (
            "in this process"
            if isinstance(session, Solo)
            else f"on {servers} parameter server{'s' * (servers > 1)}, {workers} worker{'s' * (workers > 1)}"
        )
        self.display.say(
            f"model: {described['name']}, {described['parameters']:,} parameters {where}, {self.job.mode}, "
            f"batch {self.job.batch_size} in {self._micro_batches()}"
        )

    def _micro_batches(self) -> str:
        found = self.report.micro_batches
        assert found is not None
        return f"{found.number} micro-batch{'es' * (found.number > 1)} ({found.why})"
