"""One training: epochs of updates in stretches, each epoch followed by an evaluation of the validation set."""

import statistics as stats
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import cos, isfinite, pi
from typing import Protocol

import numpy as np

from cluster.consistency.policy import Grant
from cluster.engine.messages import Item, Outcome
from cluster.errors import ClusterError
from cluster.inventory.training import Constant, OneCycle, TrainJob
from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Cursor, Fit, Plan, Update, is_better
from cluster.jobs.modes.mode import ItemResult, Mode, Step, Stretch
from cluster.jobs.roles import WireMeter
from cluster.jobs.session import Runner
from cluster.models.distillation import loss_of_guessing
from cluster.models.objective import Objective
from cluster.parameters import Vector
from cluster.status.events import Consumer, EpochEnded, Planned, Stepped, StoppedEarly, TrafficCounted, Updated
from cluster.status.parts import PARTS, Figures
from cluster.status.state import Pace
from worker_node.recordings import Standardization

DIVERGED = 5.0
"""An epoch whose mean loss is this many times that of guessing is not going to come back."""

FIRST_STRETCH = 16
"""Updates of a fit's first stretch, from which the pace is learnt."""


class DivergedError(ClusterError):
    """The loss is not finite, or far above that of guessing."""


class Keeper(Protocol):
    """What the trainer asks to keep its state: the checkpoints of a run, or nothing."""

    @property
    def every_seconds(self) -> float:
        """Time between two checkpoints."""

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""

    def progress(self, updates: int) -> None:
        """Note that `updates` more are applied."""

    def keep(self) -> None:
        """Write a checkpoint."""


class WorkSource:
    """A `Source` over one stretch of updates. The policy grants what an idle worker may begin."""

    def __init__(
        self, mode: Mode, updates: Sequence[Update], stretch: Stretch, live: Callable[[], frozenset[int]]
    ) -> None:
        self._mode, self._stretch, self._live = mode, stretch, live
        self._updates = {update.id: update for update in updates}
        self._grants: dict[int, Grant] = {}
        self.begun: set[int] = set()
        """Updates of which something has been granted."""
        mode.policy.begin(range(updates[0].id, updates[-1].id + 1))

    def draw(self, task: int) -> Item | None:
        """See Source."""
        grant = self._mode.policy.draw(task, self._live(), time.monotonic())
        if grant is None:
            return None
        item = self._mode.item(grant, self._updates[grant.update], self._stretch)
        self._grants[item.id] = grant
        self.begun.add(grant.update)
        return item

    def exhausted(self) -> bool:
        """See Source."""
        return self._mode.policy.exhausted()

    def withdrawn(self) -> list[int]:
        """See Source."""
        gone = set(self._mode.policy.withdrawn())
        return [identifier for identifier, grant in self._grants.items() if grant in gone] if gone else []

    def read(self, outcome: Outcome) -> tuple[Update, ItemResult]:
        """What an outcome says, and which update it belongs to."""
        grant = self._grants.pop(outcome.item.id)
        update = self._updates[grant.update]
        return update, self._mode.read(grant, update, outcome, self._stretch)


class Trainer:
    """Trains one network on some rows; several fits one after the other share the traced functions."""

    def __init__(
        self, runner: Runner, mode: Mode, job: TrainJob, cancel: Cancel, emit: Consumer, wire: WireMeter,
        keeper: Keeper, objective: Objective,
    ) -> None:  # fmt: skip
        self._runner, self._mode, self._job = runner, mode, job
        self._cancel, self._emit, self._wire, self._keeper = cancel, emit, wire, keeper
        self._objective = objective
        self.consistent = True
        """Whether every update that was begun is known to be applied: if not, nothing may be kept."""

    def fit(
        self, stage: str, fit: Fit, plan: Plan, standardization: Standardization,
        validate: Callable[[], Figures | None] | None, after_epoch: Callable[[], object],
    ) -> None:  # fmt: skip
        """Run the rest of the plan into `fit`, or as much as early stopping leaves. `stage` is `train` or `refit`.

        Raises DivergedError naming the update and the learning rate. Ends early when cancelled, with the parameters of
        the selected epoch, or with those at hand if no epoch was finished.
        """
        pace = Pace(plan.epochs).advanced(fit.cursor.epoch, time.monotonic())
        stretch = Stretch(
            fit.first_id, lambda batch: self._rate(plan, batch), standardization.packed(),
            lambda: len(self._runner.live),
        )  # fmt: skip
        rate = self._rate(plan, fit.cursor.epoch * plan.batches_per_epoch)
        self._emit(Planned(plan.epochs, fit.cursor.epoch, rate))
        early = self._job.early_stopping
        while fit.cursor.epoch < plan.epochs and not self._cancel.asked and not fit.stopped(early, plan.epochs):
            epoch, windows, seconds = fit.cursor.epoch, fit.windows, fit.train_seconds
            self._epoch(plan, stretch, fit)
            if self._cancel.asked:
                break
            mean = stats.fmean(fit.losses.values())
            self._refuse_divergence(mean, plan, epoch)
            validation = validate() if validate is not None else None
            if self._cancel.asked:
                break  # with the validation half done, if at all
            fit.epochs_done = epoch + 1
            if validation is None or is_better(validation, fit.selected, early):
                fit.vector, fit.epoch, fit.selected = self._at_the_end(fit, plan, validation), epoch + 1, validation
            now = time.monotonic()
            pace = pace.advanced(epoch + 1, now)
            accuracy = fit.hits / (len(fit.losses) * plan.batch_size) if self._objective.guesses else None
            ended = EpochEnded(
                stage, epoch + 1, mean, accuracy=accuracy,
                rate=self._rate(plan, (epoch + 1) * plan.batches_per_epoch - 1),
                windows_per_second=(fit.windows - windows) / max(1e-9, fit.train_seconds - seconds),
                seconds_left=pace.remaining_seconds(now) or 0.0, validation=validation,
            )  # fmt: skip
            fit.cursor, fit.losses, fit.hits = Cursor(epoch + 1), {}, 0.0
            self._emit(ended)
            if early is not None and fit.stopped(early, plan.epochs):
                # Before the checkpoint that knows of it: a run that is resumed from that one reports it no more.
                self._emit(StoppedEarly(stage, fit.epochs_done, fit.epoch, early.patience))
            after_epoch()
            if self._keeper.due():
                self._keeper.keep()
        if fit.epochs_done == 0 and fit.scheduled:
            fit.vector = self._mode.shards.read()

    def _at_the_end(self, fit: Fit, plan: Plan, validation: Figures | None) -> Vector:
        """The vector of an epoch that has ended: the parameters, or their mean over the epochs that are averaged."""
        now, averaging = self._mode.shards.read(), self._job.averaging
        before = 0 if averaging is None else fit.cursor.epoch - int(averaging.start * plan.epochs)
        if validation is not None or before <= 0:
            return now
        mean: Vector = fit.vector + (now - fit.vector) / np.float32(before + 1)
        return mean

    def _rate(self, plan: Plan, batch: int) -> float:
        return learning_rate(self._job.schedule, self._job.optimizer.learning_rate, batch, plan.batches)

    def _epoch(self, plan: Plan, stretch: Stretch, fit: Fit) -> None:
        """What is left of the present epoch."""
        while True:
            cursor = fit.cursor
            # What was repeated already is none of the epoch's own batches.
            end = (cursor.epoch + 1) * plan.batches_per_epoch - plan.replayed
            own = {batch: loss for batch, loss in fit.losses.items() if batch < end}
            updates = plan.replay(cursor.epoch, own) if cursor.replaying else plan.fresh(cursor.epoch)
            self._stretches(plan, updates, stretch, fit)
            if self._cancel.asked or cursor.replaying or not plan.replayed:
                return
            fit.cursor = Cursor(cursor.epoch, replaying=True)

    def _stretches(self, plan: Plan, updates: Sequence[Update], stretch: Stretch, fit: Fit) -> None:
        while fit.cursor.done < len(updates) and not self._cancel.asked:
            count = FIRST_STRETCH
            if fit.train_seconds and fit.windows:
                pace = fit.windows / plan.batch_size / fit.train_seconds
                count = max(1, int(pace * self._keeper.every_seconds))
            before, done = self._wire.read(), fit.cursor.done
            self._stretch(plan, updates[done : done + count], stretch, fit)
            if fit.cursor.done > done:
                added = self._wire.add(before, self._wire.read(), fit.cursor.done - done)
                if added is not None:
                    self._emit(TrafficCounted(added.sent, added.received, fit.cursor.done - done))
            if self.consistent and self._keeper.due() and fit.cursor.done < len(updates):
                self._keeper.keep()

    def _stretch(self, plan: Plan, updates: Sequence[Update], stretch: Stretch, fit: Fit) -> None:
        source = WorkSource(self._mode, updates, stretch, lambda: self._runner.live)
        complete: set[int] = set()
        started = time.monotonic()
        try:
            self._run(plan, source, fit, complete)
        finally:
            fit.train_seconds += time.monotonic() - started
            last = self._mode.settle()
            # An unfinished step is never applied; a push without a reply may be.
            begun = source.begun if last is None else complete
            fit.scheduled += len(begun)
        settled = not complete or last is None or self._settle(last)
        in_order = set(range(updates[0].id, updates[0].id + len(complete)))
        self.consistent = settled and begun == complete == in_order
        if self.consistent:
            fit.cursor = replace(fit.cursor, done=fit.cursor.done + len(complete))

    def _run(self, plan: Plan, source: WorkSource, fit: Fit, complete: set[int]) -> None:
        """Run the source; ids of complete updates go into `complete` as they come."""
        started, windows = time.monotonic(), 0
        before = fit.cursor.done + (plan.fresh_updates if fit.cursor.replaying else 0)
        for outcome in self._runner.run(source, lambda: self._cancel.asked):
            update, reply = source.read(outcome)
            windows += reply.windows
            parts = dict(zip(PARTS[:3], reply.seconds, strict=True))
            parts["wait"] = max(0.0, outcome.seconds - sum(reply.seconds))
            self._emit(Stepped(outcome.task, reply.windows, reply.staleness, outcome.seconds, parts))
            if reply.step is None:
                continue
            complete.add(update.id)
            self._account(plan, update, reply.step, fit)
            fit.step_seconds.append(outcome.seconds)
            fit.staleness = fit.staleness.added([reply.staleness])
            self._keeper.progress(1)
            rate = self._rate(plan, update.batches[-1])
            pace, loss = windows / max(1e-9, time.monotonic() - started), stats.fmean(reply.step.losses.values())
            done = fit.cursor.epoch * plan.per_epoch + before + len(complete)
            self._emit(Updated(update.id, done, plan.updates, loss, rate, pace))

    def _settle(self, item: Item) -> bool:
        """Have the last step applied; whether that was done before the person's patience ended."""
        settled = False
        for outcome in self._runner.run([item], self._cancel.overdue):
            settled = True
            if not isfinite(float(outcome.value)):
                raise DivergedError(
                    f"the norm of the last gradient is {float(outcome.value)}: lower "
                    "jobs.train.optimizer.learning_rate or jobs.train.clip_norm"
                )
        return settled

    def _account(self, plan: Plan, update: Update, step: Step, fit: Fit) -> None:
        for batch, loss in step.losses.items():
            if not (isfinite(loss) and isfinite(step.norm)):
                raise DivergedError(
                    f"update {update.id} (epoch {update.id // plan.per_epoch + 1}): the loss is {loss}, the norm of "
                    f"the gradient {step.norm} at learning rate {self._rate(plan, batch):.3g}: lower "
                    "jobs.train.optimizer.learning_rate or jobs.train.clip_norm"
                )
        fit.windows += len(step.losses) * plan.batch_size
        fit.losses.update(step.losses)
        fit.hits += step.hits

    def _refuse_divergence(self, mean: float, plan: Plan, epoch: int) -> None:
        guessing = loss_of_guessing(self._objective, self._job.distill)
        if guessing is None:
            return
        guessing *= self._mode.weights.mean
        if mean > DIVERGED * guessing:
            last = (epoch + 1) * plan.per_epoch - 1
            rate = self._rate(plan, (epoch + 1) * plan.batches_per_epoch - 1)
            raise DivergedError(
                f"epoch {epoch + 1} (update {last}): the mean loss is {mean:.3g}, that of guessing {guessing:.3g}; the "
                f"learning rate was {rate:.3g}: lower jobs.train.optimizer.learning_rate"
            )


def learning_rate(schedule: OneCycle | Constant, peak: float, update: int, updates: int) -> float:
    """The rate of update number `update` (from 0) of `updates`.

    `one_cycle` is Smith & Topin's (arXiv 1708.07120) as in PyTorch's OneCycleLR with cosine annealing: from
    `peak / initial_divisor` up to `peak` at the end of the warm-up, then down to the first rate / `final_divisor`.
    """
    if isinstance(schedule, Constant):
        return peak
    first = peak / schedule.initial_divisor
    last = first / schedule.final_divisor
    top = schedule.warmup_fraction * updates - 1.0
    if update < top:
        return _between(first, peak, update / top)
    remaining = updates - 1 - top
    return _between(peak, last, (update - top) / remaining if remaining > 0 else 1.0)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (1.0 + cos(pi * min(max(share, 0.0), 1.0)))
