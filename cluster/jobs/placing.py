"""A training on its places: parameters there, functions traced, workers in the cluster.

It says what a person should know before it begins.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cluster.apps.app_network import AppNetwork
from cluster.jobs.evaluation import Evaluation, Evaluator
from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.lifecycle import Job
from cluster.jobs.modes import Mode, Setup, mode_of, wire_codecs
from cluster.jobs.progress import Display
from cluster.jobs.session import Runner, Session, Solo
from core.engine.devices import computing_words
from core.engine.runtime import device
from core.inventory.slots import LIBRARY, BatchSlots, ChosenArithmetic, on_devices
from core.inventory.training import TrainJob
from core.inventory.training_sections import apart_from_recipe
from core.metrics.process import usable_cores
from core.models.native import OWN_THREADS
from core.models.network import Network


@dataclass(frozen=True)
class Placed:
    """What trains and judges every fit of a job: the functions are traced once."""

    runner: Runner
    mode: Mode
    evaluator: Evaluator


def place(
    session: Session | Solo,
    setup: Setup,
    devices: tuple[str, ...],
    display: Display,
    join: Callable[[], Runner],
) -> Placed:
    """Place the parameters, trace every function, and have the workers join.

    `devices` are those of this process. The setup says no places yet.
    """
    job = setup.job
    if job.arithmetic == LIBRARY or setup.network.has_library_layers:
        session.require_library()
    places = dict(enumerate(session.places))
    computing = devices
    runner: Runner | None = None
    if job.facts.parameters == "workers" and isinstance(session, Session):
        # Its functions span the workers that are there: they are traced once these have joined.
        runner = join()
        places = {task: device("worker", task) for task in sorted(runner.live)}
        computing = tuple(device("worker", task, job.device.kind) for task in places)
    with display.busy("placing the parameters, tracing the network"):
        threads = OWN_THREADS
        if len(session.computing) > 1:
            threads = max(1, usable_cores() // len(session.computing))
        placed = replace(setup, places=places, devices_that_compute=computing, threads=threads)
        mode = mode_of(placed)
        evaluation = Evaluation(setup.network, setup.windows, mode.shards, job)
    runner = runner or join()
    return Placed(runner, mode, Evaluator(runner, evaluation))


def slots_of(job: TrainJob, session: Session | Solo, devices: int, begun: int | None) -> BatchSlots:
    """Return the number of slots that the user set, that the run began with, or that suits.

    The job's arithmetic is chosen by now. `devices` are those of this process, `begun` the number
    of the run that is resumed.
    """
    if isinstance(job.slots, int):
        return BatchSlots(job.slots, "set by jobs.train.slots")
    if begun is not None:
        return BatchSlots(begun, "the run began with it")
    suitable = job.auto_slots(session.workers, session.worker_cores(), own_model=False)
    if job.arithmetic == LIBRARY:
        return suitable
    if isinstance(session, Session):
        devices = session.workers
    return on_devices(job.mode, job.device.kind, devices, job.batch_size, suitable)


def meter_training(run: Job, job: TrainJob) -> None:
    """Have the run's /metrics show the progress of a training."""
    pull, push = wire_codecs(job.codec)
    codecs = {"pull": pull.name, "push": push.name}
    training_metrics = TrainingMetrics(run.metrics.registry, codecs, job.checkpoint.every_seconds)
    run.stream.add(run.metrics.metered(training_metrics.consume))


log = logging.getLogger(__name__)


def reproducible(job: TrainJob, processors: set[str | None]) -> bool | None:
    """Return whether another run would end with the same bits, on any number of such nodes.

    By the library also on other ones. None if that is unknown.
    """
    if not job.facts.same_bits(job.mode_options):
        return False
    if job.arithmetic == LIBRARY:
        return True
    if (
        None in processors or job.device.kind != "cpu" or job.compiled
    ):  # no two runs were compared on others
        return None
    if len(processors) > 1:
        log.warning(
            "the nodes have different processors (%s): under TensorFlow's arithmetic, who computes"
            " what changes the last bits of the result",
            ", ".join(sorted(filter(None, processors))),
        )
    return len(processors) == 1


def opening_lines(
    job: TrainJob,
    network: Network,
    session: Session | Solo,
    *,
    cut: BatchSlots | None,
    arithmetic: ChosenArithmetic | None,
    on: tuple[str, ...],
) -> Iterator[str]:
    """Yield what a person should know before a long training. `on`: the devices of this process."""
    described = network.describe()
    assert cut is not None
    assert arithmetic is not None
    servers = len(session.places)
    workers = session.workers
    if isinstance(session, Solo):
        where = "in this process"
    else:
        where = (
            f"on {servers} parameter server{'s' * (servers > 1)}, {workers}"
            f" worker{'s' * (workers > 1)}"
        )
    where += computing_words(job.device, on)
    if isinstance(network, AppNetwork):
        yield from network.notes()
    if changed_values := apart_from_recipe(job.recipe, job.model_dump(mode="json", by_alias=True)):
        yield f"recipe {job.recipe}, but {', '.join(changed_values)}"
    yield (
        f"model: {described['name']}, {described['parameters']:,} parameters {where},"
        f" {job.mode}, batch {job.batch_size} in {cut.number}"
        f" slot{'s' * (cut.number > 1)} ({cut.why}); arithmetic: {arithmetic.name}"
        f" ({arithmetic.why})"
    )
