"""`python -m cluster.jobs.check_app`: measure some steps of an app here, for `fab app check`."""

import argparse
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.apps.copy import app_path, named_app, run_of
from cluster.apps.environments import continue_in, local_environments
from cluster.apps.measured import MeasuredStep
from cluster.jobs.cancel import Cancel, JobCancelled
from core.engine.runtime import one_thread_an_operation
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.inventory import Inventory, load
from core.inventory.slots import auto_slots
from core.inventory.training import TrainJob
from core.logs import say
from core.metrics.process import memory_bytes, usable_cores
from core.status.parts import largest

if TYPE_CHECKING:
    from cluster.apps.app_network import AppNetwork
    from cluster.jobs.modes import Mode
    from core.data import Dataset

MOST_STEPS = 30
MOST_SECONDS = 5.0
FEWEST_STEPS = 3
SAMPLE_SECONDS = 0.005
RATE = 1e-4


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the app of the inventory; its figures are the one line on standard output.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m cluster.jobs.check_app", description=__doc__)
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--environment", default="", metavar="KEY")
    options = parser.parse_args(arguments)
    if arguments is None:
        command_line = sys.argv[1:]
    else:
        command_line = list(arguments)
    try:
        if options.environment:
            continue_in(
                local_environments(), options.environment, ["cluster.jobs.check_app", *command_line]
            )
        # Everything happens on this machine, whatever machines the inventory names.
        inventory = load(options.inventory, options.set, check_interfaces=False).model_copy(
            update={"connection": "local"}
        )
        # What the app prints is none of the figures.
        with Cancel() as cancel, redirect_stdout(sys.stderr):
            measured = _measured(inventory, cancel)
    except JobCancelled:
        return ExitCode.CANCELLED
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    say(measured.to_json())
    return ExitCode.DONE


WHY_NO_LOSS = (
    "a division by zero, a logarithm of zero, or numbers in data() that are far from the range -10"
    " to 10"
)
WHY_NO_GRADIENT = "a root, a power or a logarithm whose slope at zero is infinite"


def _refuse_unless_finite(path: Path, figure: str, value: float, why: str) -> None:
    if not math.isfinite(value):
        raise ClusterError(f"{path}: {figure} is {value}: expected a finite number: look for {why}")


def _measured(inventory: Inventory, cancel: Cancel) -> MeasuredStep:
    begin = time.monotonic()
    path = app_path(inventory)
    if path is None:
        raise UsageError("jobs.train.app: expected an app to check, got none")
    named_app(path)
    with _Memory() as memory:
        from core.engine.environment import loading_quietly

        with loading_quietly():
            import core.engine.graph_options  # noqa: F401  (loads TensorFlow)
            from cluster.apps.app import load as load_app
            from cluster.apps.app import load_copy, name_of
            from cluster.apps.app_network import Kind
            from cluster.apps.networks import network_of
            from cluster.jobs.progress import Display
            from cluster.jobs.sources import load_dataset
        one_thread_an_operation()
        with cancel.at_once():
            if run_of(path) is None:
                app = load_app(path)
            else:
                app = load_copy(path, name_of(path))
        if not app.has_model:
            raise UsageError(
                f"{path}: expected an app with a model to check, got one with data() alone:"
                " train it"
            )
        with Display(quiet=True) as display:
            dataset = load_dataset(inventory, display, cancel, lambda event: None, app)
        cores = usable_cores()
        train = inventory.jobs.train
        pieces = auto_slots("single", train.batch_size, 1, [cores]).number
        number = train.slots if isinstance(train.slots, int) else pieces
        job = train.model_copy(update={"mode": "single"}).cut_into(number)
        with cancel.at_once():
            network = network_of(app, Kind.of_dataset(dataset), job.seed)
        steps = _Steps(network, job, dataset)
        prepared = memory.highest
        before = memory.marked()
        loss = steps.run()
        first = time.monotonic() - begin
        _refuse_unless_finite(path, "the loss of the first step", loss, WHY_NO_LOSS)
        seconds = steps.timed(cancel)
        _refuse_unless_finite(path, "the gradient of a step", steps.norm, WHY_NO_GRADIENT)
        after = memory.highest_since_mark()
    return MeasuredStep(
        app.name,
        network.kind.task,
        network.problem.input_shape,
        network.problem.outputs,
        dataset.train_windows,
        network.layout.trained_size,
        network.layout.statistics_size,
        loss=loss,
        first_loss_seconds=first,
        batch_size=job.batch_size,
        batch_slots=number,
        cores=cores,
        steps=len(seconds),
        step_seconds=statistics.median(seconds),
        step_bytes=max(0, after - before),
        process_bytes=prepared,
        **_vectors(train, network),
    )


def _vectors(train: TrainJob, network: "AppNetwork") -> dict[str, int]:
    """Vectors that the roles keep, and bytes on the wire."""
    from cluster.jobs.modes import optimizer_of, wire_codecs

    pull, push = wire_codecs(train.codec)
    trained = network.layout.trained_size
    measured = network.layout.statistics_size
    slots = len(optimizer_of(train.optimizer).slot_names)
    if train.facts.batches(train.mode_options) > 1:
        inner_slots = slots
    else:
        inner_slots = 0
    return {
        "slots": slots,
        "remembered": push.memory_rows + inner_slots,
        "pull_bytes": 4 * (pull.words(trained) + measured),
        "push_bytes": 4 * (push.words(trained) + measured),
    }


class _Steps:
    """Steps of a job in mode `single`, in this process, on the product's own graphs."""

    def __init__(self, network: "AppNetwork", job: TrainJob, dataset: "Dataset") -> None:
        import numpy as np

        from cluster.jobs.modes import Setup, Stretch, mode_of
        from core.consistency import Speeds
        from core.engine.devices import HOST
        from ps_node.shard import VectorState
        from worker_node.recordings import Standardization, WorkerWindows

        state = VectorState(network.initial(job.seed))
        windows = WorkerWindows(dataset)
        self._mode: Mode = mode_of(Setup(job, network, windows, state, {0: HOST}, Speeds()))
        self._mode.policy.begin(range(MOST_STEPS + FEWEST_STEPS + 1))
        order = np.random.default_rng(job.seed).permutation(dataset.train_windows)
        # As the trainer's batches; a small set repeats rows, so that a step is as large as it will
        # be.
        self._rows = np.resize(order, job.batch_size).astype(np.int32)[None]
        packed = Standardization.of_rows(dataset, np.arange(dataset.train_windows)).packed()
        self._stretch = Stretch(0, lambda batch: RATE, packed, lambda: 1)
        self._done = 0
        self.norm = 0.0
        """The largest of the gradients so far; a step's comes with the next one."""

    def run(self) -> float:
        """Run one step and return its mean loss. Raises ClusterError."""
        from cluster.jobs.fit import Update
        from core.engine.changes import first_line
        from core.engine.workers import Outcome

        import tensorflow as tf  # isort: skip

        grant = self._mode.policy.draw(0, frozenset({0}), 0.0)
        assert grant is not None
        update = Update(self._done, (self._done,), self._rows)
        item = self._mode.item(grant, [update], self._stretch)
        try:
            value: Any = item.function(*item.arguments)
        except tf.errors.OpError as problem:
            raise ClusterError(f"a step of the app failed: {first_line(problem)}") from None
        value = tf.nest.map_structure(lambda tensor: tensor.numpy(), value)
        outcome = Outcome(item, 0, value, 0.0, 1)
        (reply,) = self._mode.read(grant, [update], outcome, self._stretch)
        self._done += 1
        if reply.step is None:
            return float("nan")
        self.norm = largest((self.norm, reply.step.norm))
        return sum(reply.step.losses.values()) / len(reply.step.losses)

    def timed(self, cancel: Cancel) -> list[float]:
        """The seconds of some steps."""
        seconds = list[float]()
        end = time.monotonic() + MOST_SECONDS
        while len(seconds) < FEWEST_STEPS or (len(seconds) < MOST_STEPS and time.monotonic() < end):
            cancel.check()
            begin = time.monotonic()
            self.run()
            seconds.append(time.monotonic() - begin)
        return seconds


class _Memory:
    """Watches the anonymous memory of this process."""

    def __init__(self) -> None:
        self._samples: list[int] = [self.now()]
        self._mark = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> "_Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._samples.append(self.now())

    @staticmethod
    def now() -> int:
        """Bytes."""
        return memory_bytes(Path("/proc/self/status").read_text())["RssAnon"]

    def marked(self) -> int:
        """Bytes now; `highest_since_mark` begins here."""
        self._mark = len(self._samples)
        return self.now()

    @property
    def highest(self) -> int:
        """Bytes so far."""
        return max(self._samples)

    def highest_since_mark(self) -> int:
        """Bytes."""
        return max([*self._samples[self._mark :], self.now()])


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's threads cannot be joined
