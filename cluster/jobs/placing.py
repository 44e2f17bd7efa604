"""A training on its places: parameters there, functions traced, workers in the cluster."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from cluster.jobs.evaluation import Evaluation, Evaluator
from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.lifecycle import Job
from cluster.jobs.modes.mode import Mode, Setup, mode_of, wire_codecs
from cluster.jobs.progress import Display
from cluster.jobs.session import Runner, Session, Solo
from core.engine.runtime import device
from core.inventory.arithmetic import LIBRARY
from core.inventory.slots import BatchSlots, on_devices
from core.inventory.training import TrainJob
from core.metrics.process import usable_cores
from core.models.native import OWN_THREADS


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
    training_metrics = TrainingMetrics(
        run.metrics.registry, run.status.now, pull.name, push.name, job.checkpoint.every_seconds
    )
    run.stream.add(run.metrics.metered(training_metrics.consume))
