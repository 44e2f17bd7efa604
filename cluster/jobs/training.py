"""One training: epochs of updates in stretches, each epoch followed by its validation."""

import statistics as stats
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from cluster.jobs.cancel import CALLS_SECONDS, Cancel
from cluster.jobs.checkpointing import RunKeeper
from cluster.jobs.fit import (
    Cursor,
    DivergedError,
    Fit,
    LossCourse,
    Plan,
    Update,
    is_better,
    refuse_without_loss,
)
from cluster.jobs.modes import Mode, Step, Stretch, WorkSource, parts_of_each
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_logs import Hold
from cluster.jobs.session import Runner
from core.engine.workers import Item
from core.ground.waiting import until
from core.inventory.training import TrainJob
from core.models.objective import Objective
from core.parameters import Vector
from core.status.events import (
    Consumer,
    EpochEnded,
    Planned,
    Stepped,
    StoppedEarly,
    TrafficCounted,
    Updated,
)
from core.status.parts import Figures
from core.status.records import Pace
from worker_node.recordings import Standardization

HOLD_LOOK_SECONDS = 0.05


FIRST_STRETCH = 16
"""Updates of a fit's first stretch, from which the pace is learnt."""


def stretch_updates(
    updates_a_second: float | None, every_seconds: float, seconds_left: float
) -> int:
    """Return the updates of a stretch that ends just after the next checkpoint is due.

    None is an unknown pace. Workers wait for each other at its end, so it lasts a tenth of the time
    between two checkpoints at least.
    """
    if updates_a_second is None:
        return FIRST_STRETCH
    return 1 + int(updates_a_second * max(seconds_left, every_seconds / 10.0))


class Trainer:
    """Trains one network on some rows; fits one after the other share the traced functions."""

    def __init__(
        self,
        runner: Runner,
        mode: Mode,
        job: TrainJob,
        cancel: Cancel,
        emit: Consumer,
        wire: WireMeter,
        keeper: RunKeeper,
        objective: Objective,
    ) -> None:
        self._runner = runner
        self._mode = mode
        self._job = job
        self._cancel = cancel
        self._emit = emit
        self._wire = wire
        self._keeper = keeper
        self._objective = objective
        self.hold: Hold | None = None
        """Point at which it waits until it is let go."""
        self._pace: float | None = None
        """Updates a second of the last stretch: workers come and go, so that no earlier one says
        anything."""
        self.consistent = True
        """Whether every update that was begun is known to be applied: if not, nothing may be kept.
        """

    def fit(
        self,
        stage: str,
        fit: Fit,
        plan: Plan,
        standardization: Standardization,
        validate: Callable[[], Figures | None] | None,
        after_epoch: Callable[[], object],
    ) -> None:
        """Run the rest of the plan into `fit`, or as much as early stopping leaves.

        `stage` is `train` or `refit`.

        Raises DivergedError naming the update and the learning rate. Ends early when cancelled,
        with the parameters of the selected epoch, or with those at hand if no epoch was finished.
        """
        pace = Pace(plan.epochs).advanced(fit.cursor.epoch, time.monotonic())
        stretch = Stretch(
            fit.first_id,
            plan.rate,
            standardization.packed(),
            lambda: len(self._runner.live),
        )
        rate = plan.rate(fit.cursor.epoch * plan.batches_per_epoch)
        self._emit(Planned(plan.epochs, fit.cursor.epoch, rate))
        early = self._job.early_stopping
        course = self._course()
        while (
            fit.cursor.epoch < plan.epochs
            and not self._cancel.asked
            and not fit.stopped(early, plan.epochs)
        ):
            epoch = fit.cursor.epoch
            windows = fit.windows
            seconds = fit.train_seconds
            self._epoch(plan, stretch, fit)
            if self._cancel.asked:
                break
            self._refuse_divergence(course, plan, fit)
            if validate is not None:
                validation = validate()
            else:
                validation = None
            if self._cancel.asked:
                break  # with the validation half done, if at all
            if validation is not None:
                refuse_without_loss(validation)
            fit.epochs_done = epoch + 1
            if validation is None or is_better(validation, fit.selected, early):
                fit.vector = self._at_the_end(fit, plan, validation)
                fit.epoch = epoch + 1
                fit.selected = validation
            pace = pace.advanced(epoch + 1, time.monotonic())
            speed = (fit.windows - windows) / max(1e-9, fit.train_seconds - seconds)
            ended = self._ended(stage, plan, fit, pace, speed, validation)
            fit.cursor = Cursor(epoch + 1)
            fit.losses = {}
            fit.hits = 0.0
            self._emit(ended)
            if early is not None and fit.stopped(early, plan.epochs):
                # Before the checkpoint that knows of it: a run that is resumed from that one
                # reports it no more.
                self._emit(StoppedEarly(stage, fit.epochs_done, fit.epoch, early.patience))
            after_epoch()
            if self._keeper.due():
                self._keeper.keep()
        if fit.epochs_done == 0 and fit.scheduled:
            fit.vector = self._now(fit)

    def _ended(
        self,
        stage: str,
        plan: Plan,
        fit: Fit,
        pace: Pace,
        windows_per_second: float,
        validation: Figures | None,
    ) -> EpochEnded:
        """Return what there is to say of the epoch that has just ended."""
        epoch = fit.epochs_done
        if self._objective.guesses:
            accuracy = fit.hits / (len(fit.losses) * plan.batch_size)
        else:
            accuracy = None
        return EpochEnded(
            stage,
            epoch,
            stats.fmean(fit.losses.values()),
            accuracy=accuracy,
            rate=plan.rate(epoch * plan.batches_per_epoch - 1),
            windows_per_second=windows_per_second,
            seconds_left=pace.remaining_seconds(time.monotonic()) or 0.0,
            validation=validation,
        )

    def _at_the_end(self, fit: Fit, plan: Plan, validation: Figures | None) -> Vector:
        """Return the vector of an epoch that has ended: its parameters, or a mean over epochs."""
        now = self._now(fit)
        averaging = self._job.averaging
        if averaging is None:
            before = 0
        else:
            before = fit.cursor.epoch - int(averaging.start * plan.epochs)
        if validation is not None or before <= 0:
            return now
        mean: Vector = fit.vector + (now - fit.vector) / np.float32(before + 1)
        return mean

    def _now(self, fit: Fit) -> Vector:
        """Return the parameters. Raises DivergedError if a finite gradient took them too far."""
        vector = self._mode.shards.read()
        lost = int(np.count_nonzero(~np.isfinite(vector)))
        if lost:
            raise DivergedError(
                f"{lost:,} of {len(vector):,} parameters are not finite after epoch"
                f" {fit.cursor.epoch + 1}: {self._remedy(1)}"
            )
        return vector

    def _epoch(self, plan: Plan, stretch: Stretch, fit: Fit) -> None:
        """Run what is left of the present epoch."""
        while True:
            cursor = fit.cursor
            # What was repeated already is none of the epoch's own batches.
            end = (cursor.epoch + 1) * plan.batches_per_epoch - plan.replayed
            losses = {batch: loss for batch, loss in fit.losses.items() if batch < end}
            if cursor.replaying:
                updates = plan.replay(cursor.epoch, losses)
            else:
                updates = plan.fresh(cursor.epoch)
            self._stretches(plan, updates, stretch, fit)
            if self._cancel.asked or cursor.replaying or not plan.replayed:
                return
            fit.cursor = Cursor(cursor.epoch, replaying=True)

    def _stretches(self, plan: Plan, updates: Sequence[Update], stretch: Stretch, fit: Fit) -> None:
        while fit.cursor.done < len(updates) and not self._cancel.asked:
            done = fit.cursor.done
            count = min(
                stretch_updates(
                    self._pace, self._keeper.every_seconds, self._keeper.seconds_left()
                ),
                self._keeper.updates_left(),
                self._wait_if_held(fit.first_id + updates[done].id),
            )
            before = self._wire.read()
            self._stretch(plan, updates[done : done + int(count)], stretch, fit)
            if fit.cursor.done > done:
                added = self._wire.add(before, self._wire.read(), fit.cursor.done - done)
                if added is not None:
                    self._emit(TrafficCounted(added.sent, added.received, fit.cursor.done - done))
            if self.consistent and self._keeper.due() and fit.cursor.done < len(updates):
                self._keeper.keep()

    def _wait_if_held(self, applied: int) -> float:
        """Wait here if the run is to be held now; return the updates until it is."""
        if self.hold is None:
            return inf
        updates_left = self.hold.updates_left(applied)
        if updates_left > 0:
            return updates_left
        self.hold.begin(applied)
        until(self._is_let_go, inf, HOLD_LOOK_SECONDS)  # a runner without workers returns at once
        return self.hold.updates_left(applied) or 1

    def _is_let_go(self) -> bool:
        assert self.hold is not None
        if self.hold.exhausted() or self._cancel.asked:
            return True
        for _ in self._runner.run(self.hold, lambda: self._cancel.asked, CALLS_SECONDS):
            pass
        return False

    def _stretch(self, plan: Plan, updates: Sequence[Update], stretch: Stretch, fit: Fit) -> None:
        source = WorkSource(self._mode, updates, stretch, lambda: self._runner.live)
        complete: set[int] = set()
        started = time.monotonic()
        try:
            self._run(plan, source, fit, complete)
        finally:
            seconds = time.monotonic() - started
            fit.train_seconds += seconds
            self._pace = len(complete) / max(1e-9, seconds)
            last = self._mode.settle()
            # Workers finish a step without the coordinator only before their calls reply.
            if last is None:
                fit.scheduled += len(source.begun)
            else:
                fit.scheduled += len(complete)
        settled = not complete or last is None or self._settle(last)
        following = updates[0].id + len(complete)
        self.consistent = complete == set(range(updates[0].id, following))
        if not settled or source.begun != complete:
            # Calls under way push whenever they end: what is read, kept and tested from here on
            # must not change.
            self._mode.shards.fence()
            applied = self._mode.shards.has_applied_all_below(fit.first_id + following)
            self.consistent = self.consistent and applied
        if self.consistent:
            fit.cursor = replace(fit.cursor, done=fit.cursor.done + len(complete))

    def _run(self, plan: Plan, source: WorkSource, fit: Fit, complete: set[int]) -> None:
        """Run the source; ids of complete updates go into `complete` as they come."""
        started = time.monotonic()
        windows = 0
        before = fit.cursor.done + (plan.fresh_updates if fit.cursor.replaying else 0)
        for outcome in self._runner.run(source, lambda: self._cancel.asked, CALLS_SECONDS):
            results = source.read(outcome)
            seconds = outcome.seconds / max(1, len(results))
            times = parts_of_each([result.seconds for _, result in results], outcome.seconds)
            for (update, result), part_seconds in zip(results, times, strict=True):
                windows += result.windows
                self._emit(
                    Stepped(outcome.task, result.windows, result.staleness, seconds, part_seconds)
                )
                if result.step is None:
                    continue
                complete.add(update.id)
                self._account(plan, update, result.step, fit)
                fit.step_seconds.append(seconds)
                fit.staleness = fit.staleness.added([result.staleness])
                memories = self._mode.memories
                self._keeper.progress(1, memories.lost, memories.holders)
                rate = plan.rate(update.batches[-1])
                pace = windows / max(1e-9, time.monotonic() - started)
                loss = stats.fmean(result.step.losses.values())
                done = fit.cursor.epoch * plan.per_epoch + before + len(complete)
                self._emit(Updated(update.id, done, plan.updates, loss, rate, pace))

    def _settle(self, item: Item) -> bool:
        """Have the last step applied; whether that was done before the person's patience ended."""
        settled = False
        for outcome in self._runner.run([item], self._cancel.overdue, 0.0):
            settled = True
            if not isfinite(float(outcome.value)):
                raise DivergedError(
                    f"the norm of the last gradient is {float(outcome.value)}: {self._remedy(1)}"
                )
        return settled

    def _account(self, plan: Plan, update: Update, step: Step, fit: Fit) -> None:
        for batch, loss in step.losses.items():
            if not isfinite(step.norm) and (step.behind or isfinite(loss)):
                reason = f"the norm of the gradient is {step.norm}"
                self._refuse(plan, update.id - step.behind, batch - step.behind, reason)
            if not isfinite(loss):
                self._refuse(plan, update.id, batch, f"the loss is {loss}")
        fit.windows += len(step.losses) * plan.batch_size
        fit.losses.update(step.losses)
        fit.hits += step.hits

    def _refuse(self, plan: Plan, update: int, batch: int, reason: str) -> None:
        raise DivergedError(
            f"update {update} (epoch {update // plan.per_epoch + 1}): {reason} at learning rate"
            f" {plan.rate(batch):.3g}: {self._remedy(batch)}"
        )

    def _remedy(self, batch: int) -> str:
        """Say what to do about a loss or gradient that is not finite."""
        if batch == 0:
            return "nothing was learnt before it, so look at the data, the model and its loss"
        if self._job.clip_norm is None:
            clip = "set"
        else:
            clip = "lower"
        return f"lower jobs.train.optimizer.learning_rate, or {clip} jobs.train.clip_norm"

    def _course(self) -> LossCourse | None:
        """Return None if the loss of guessing is unknown, as with a loss of an app."""
        guessing = self._objective.loss_of_guessing
        if guessing is None:
            return None
        return LossCourse(guessing * self._mode.weights.mean)

    def _refuse_divergence(self, course: LossCourse | None, plan: Plan, fit: Fit) -> None:
        epoch = fit.cursor.epoch
        end = (epoch + 1) * plan.batches_per_epoch
        losses = [fit.losses[batch] for batch in sorted(fit.losses) if batch < end - plan.replayed]
        if course is not None and losses:
            reason = course.diverged(losses)
        else:
            reason = None
        if reason is not None:
            last = (epoch + 1) * plan.per_epoch - 1
            rate = plan.rate(end - 1)
            raise DivergedError(
                f"epoch {epoch + 1} (update {last}): {reason}; the learning rate was {rate:.3g}:"
                " lower jobs.train.optimizer.learning_rate"
            )
