"""`python -m cluster.jobs.check_app`: some steps of an app in this process, measured, for `fab app check`."""

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
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cluster.apps.environments import continue_in, local_environments
from cluster.apps.files import app_path
from cluster.apps.measured import MeasuredStep
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.micro_batches import auto_micro_batches
from cluster.inventory.training import TrainJob
from cluster.jobs.cancel import Cancel, Cancelled
from cluster.logs.terminal import say
from cluster.metrics.processor import usable_cores

if TYPE_CHECKING:
    from cluster.apps.networks import AppNetwork
    from cluster.data import Dataset
    from cluster.jobs.modes.mode import Mode

MOST_STEPS, MOST_SECONDS = 30, 5.0
FEWEST_STEPS = 3
SAMPLE_SECONDS = 0.005
RATE = 1e-4


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the app of the inventory; its figures are the one line on standard output. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster.jobs.check_app", description=__doc__)
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--environment", default="", metavar="KEY")
    given = parser.parse_args(arguments)
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given.environment:
            continue_in(local_environments(), given.environment, ["cluster.jobs.check_app", *words])
        # Everything happens on this machine, whatever machines the inventory names.
        inventory = load(given.inventory, given.set, check_interfaces=False).model_copy(update={"connection": "local"})
        # What the app prints is none of the figures.
        with Cancel() as cancel, redirect_stdout(sys.stderr):
            measured = _measured(inventory, cancel)
    except Cancelled:
        return ExitCode.CANCELLED
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    say(measured.to_json())
    return ExitCode.DONE


def _measured(inventory: Inventory, cancel: Cancel) -> MeasuredStep:
    begin = time.monotonic()
    path = app_path(inventory)
    if path is None:
        raise UsageError("jobs.train.app: expected an app to check, got none")
    with _Memory() as memory:
        from cluster.engine.environment import loading_quietly

        with loading_quietly():
            from cluster.apps.app import load as load_app
            from cluster.apps.networks import Kind, network_of
            from cluster.engine.runtime import one_thread_an_operation
            from cluster.jobs.progress import Display
            from cluster.jobs.sources import load_dataset
        one_thread_an_operation()
        with cancel.at_once():
            app = load_app(path)
        if not app.has_model:
            raise UsageError(f"{path}: expected an app with a model to check, got one with data() alone: train it")
        with Display(quiet=True) as display:
            dataset = load_dataset(inventory, display, cancel, lambda event: None, app)
        cores = usable_cores()
        train = inventory.jobs.train
        pieces = auto_micro_batches("single", train.batch_size, 1, [cores]).number
        number = train.micro_batches if isinstance(train.micro_batches, int) else pieces
        job = train.model_copy(update={"mode": "single", "distill": None}).cut_into(number)
        with cancel.at_once():
            network = network_of(app, Kind.of(dataset), job.seed)
        steps = _Steps(network, job, dataset)
        prepared, before = memory.highest, memory.marked()
        loss = steps.run()
        first = time.monotonic() - begin
        if not math.isfinite(loss):
            raise ClusterError(
                f"{path}: the loss of the first step is {loss}: expected a finite number: look for a division by zero, "
                "a logarithm of zero, or numbers in data() that are far from the range -10 to 10"
            )
        seconds, gradients = steps.timed(cancel)
        after = memory.highest_since_mark()
    return MeasuredStep(
        app.name, network.kind.task, list(network.problem.input_shape), network.problem.outputs, dataset.train_windows,
        network.layout.trained_size, network.layout.statistics_size, loss=loss, first_loss_seconds=first,
        batch_size=job.batch_size, micro_batches=number, cores=cores, steps=len(seconds),
        step_seconds=(step := statistics.median(seconds)), gradient_seconds=min(step, statistics.median(gradients)),
        step_bytes=max(0, after - before), process_bytes=prepared, **_vectors(train, network),
    )  # fmt: skip


def _vectors(train: TrainJob, network: "AppNetwork") -> dict[str, int]:
    """Vectors that the roles keep, and bytes on the wire."""
    from cluster.jobs.modes.mode import optimizer_of, wire_codecs

    pull, push = wire_codecs(train.codec)
    trained, measured = network.layout.trained_size, network.layout.statistics_size
    slots = len(optimizer_of(train.optimizer).slot_names)
    own = slots if train.facts.batches(train.mode_options) > 1 else 0
    return {
        "slots": slots,
        "remembered": push.memory_rows + own,
        "pull_bytes": 4 * (pull.words(trained) + measured),
        "push_bytes": 4 * (push.words(trained) + measured),
    }


class _Steps:
    """Steps of a job in mode `single`, in this process, on the product's own graphs."""

    def __init__(self, network: "AppNetwork", job: TrainJob, dataset: "Dataset") -> None:
        import numpy as np

        from cluster.consistency.policy import Speeds
        from cluster.engine.devices import HOST
        from cluster.jobs.modes.mode import Setup, Stretch, mode_of
        from ps_node.shard import VectorState
        from worker_node.recordings import Standardization, WorkerWindows

        state, windows = VectorState(network.initial(job.seed)), WorkerWindows(dataset)
        self._mode: Mode = mode_of(Setup(job, network, windows, state, {0: HOST}, 1, Speeds()))
        self._mode.policy.begin(range(MOST_STEPS + FEWEST_STEPS + 1))
        order = np.random.default_rng(job.seed).permutation(dataset.train_windows)
        # As the trainer's batches; a small set repeats rows, so that a step is as large as it will be.
        self._rows = np.resize(order, job.batch_size).astype(np.int32)[None]
        packed = Standardization.of(dataset, np.arange(dataset.train_windows)).packed()
        self._stretch = Stretch(0, lambda batch: RATE, packed, lambda: 1)
        self._done = 0
        self._gradient_seconds = 0.0
        """Of the latest step."""

    def run(self) -> float:
        """One step; its mean loss. Raises ClusterError."""
        from cluster.engine.lost import first_line
        from cluster.engine.messages import Outcome
        from cluster.jobs.fit import Update

        import tensorflow as tf  # isort: skip

        grant = self._mode.policy.draw(0, frozenset({0}), 0.0)
        assert grant is not None
        update = Update(self._done, (self._done,), self._rows)
        item = self._mode.item(grant, update, self._stretch)
        try:
            value: Any = self._mode.functions[item.function](*item.arguments)
        except tf.errors.OpError as problem:
            raise ClusterError(f"a step of the app failed: {first_line(problem)}") from None
        value = tf.nest.map_structure(lambda tensor: tensor.numpy(), value)
        found = self._mode.read(grant, update, Outcome(item, 0, value, 0.0, 1), self._stretch)
        self._done += 1
        self._gradient_seconds = found.seconds[1]
        return float("nan") if found.step is None else sum(found.step.losses.values()) / len(found.step.losses)

    def timed(self, cancel: Cancel) -> tuple[list[float], list[float]]:
        """The seconds of some steps, and of their gradients."""
        seconds, gradients, end = list[float](), list[float](), time.monotonic() + MOST_SECONDS
        while len(seconds) < FEWEST_STEPS or (len(seconds) < MOST_STEPS and time.monotonic() < end):
            cancel.check()
            begin = time.monotonic()
            self.run()
            seconds.append(time.monotonic() - begin)
            gradients.append(self._gradient_seconds)
        return seconds, gradients


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

    def __exit__(self, kind: type[BaseException] | None, problem: object, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._samples.append(self.now())

    @staticmethod
    def now() -> int:
        """Bytes."""
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])

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
