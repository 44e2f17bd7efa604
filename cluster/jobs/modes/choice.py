"""From an inventory's words to a mode, its policy, its optimizer and its codec."""

from collections.abc import Mapping

import numpy as np

from cluster.consistency import Asynchronous, BoundedStaleness, Policy, Speeds, Synchronous, WholeSteps
from cluster.inventory.optimizers import Adam as AdamConfig
from cluster.inventory.optimizers import AdamW as AdamWConfig
from cluster.inventory.optimizers import OptimizerConfig
from cluster.inventory.training import TrainJob
from cluster.jobs.codec_choice import wire_codecs
from cluster.jobs.modes.allreduce import AllreduceMode
from cluster.jobs.modes.asynchronous import AsynchronousMode
from cluster.jobs.modes.local import LocalMode
from cluster.jobs.modes.mode import Mode
from cluster.jobs.modes.synchronous import SynchronousMode
from cluster.models import Network
from ps_node.optimizers import Adam, MomentumSGD, Optimizer
from ps_node.shard import VectorState, Wire
from worker_node.recordings import WorkerWindows


def optimizer_of(config: OptimizerConfig) -> Optimizer:
    """The engine's optimizer that an inventory's `optimizer` entry asks for."""
    match config:
        case AdamWConfig():
            return Adam(config.beta_1, config.beta_2, config.epsilon, config.weight_decay)
        case AdamConfig():
            return Adam(config.beta_1, config.beta_2, config.epsilon)
        case _:
            return MomentumSGD(config.momentum)


def batches_per_update(job: TrainJob) -> int:
    """How many batches a worker trains on between pull and push."""
    return job.local.steps if job.mode == "local" else 1


def policy_of(job: TrainJob, workers: int, speeds: Speeds) -> Policy:
    """The policy of the job's mode over `workers` workers."""
    slots = job.pieces
    match job.mode:
        case "ssp":
            return BoundedStaleness(slots, speeds, job.ssp.bound)
        case "sync":
            return Synchronous(slots, speeds, job.sync.quorum, job.sync.backup_workers)
        case "single" | "allreduce":
            return WholeSteps(slots, speeds)
        case _:
            return Asynchronous(slots, speeds)


def mode_of(
    job: TrainJob, network: Network, windows: WorkerWindows, state: VectorState, places: Mapping[int, str],
    policy: Policy, workers: int, speeds: Speeds,
) -> Mode:  # fmt: skip
    """The job's mode with its parameters on the servers `places`, by task, all its functions traced.

    With `allreduce` the servers are the workers. Raises ClusterError.
    """
    optimizer = optimizer_of(job.optimizer)
    wire = Wire(*wire_codecs(job.codec))
    devices = tuple(places.values())
    # A number of this run's own: what a worker remembers of another run is not taken for this one's.
    owner = int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(2))
    match job.mode:
        case "async" | "ssp":
            return AsynchronousMode(job, network, windows, state, optimizer, devices, wire, policy, owner)
        case "local":
            return LocalMode(job, network, windows, state, optimizer, devices, wire, policy, owner, workers)
        case "allreduce":
            return AllreduceMode(job, network, windows, state, optimizer, places, wire, policy, speeds)
        case _:
            return SynchronousMode(job, network, windows, state, optimizer, devices, wire, policy)
