"""The arithmetic of a job: chosen before its first step, one for all workers."""

import os

from cluster.jobs.modes.mode import optimizer_of
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.inventory.slots import LIBRARY, TENSORFLOW, ChosenArithmetic, outside_library
from core.inventory.training import TrainJob
from core.models.network import BuiltIn, Network
from kernels.library import loaded
from kernels.place import KIND, path
from ps_node.arithmetic import CODECS_IN_LIBRARY, LibraryOptimizer

REMEDY = (
    "take TensorFlow's arithmetic for all workers, `--set jobs.train.arithmetic=tensorflow`: its"
    " bits are those of a kind of processor"
)


def arithmetic_of_job(job: TrainJob, network: Network) -> ChosenArithmetic:
    """Return the arithmetic that the job asks for, or that suits its network.

    Raises UsageError where the library is asked for and does not know the job's network, or cannot
    be loaded here.
    """
    if job.arithmetic == TENSORFLOW:
        return ChosenArithmetic(TENSORFLOW, "set by jobs.train.arithmetic")
    why = _outside_library(job, network)
    if why is None:
        return ChosenArithmetic(LIBRARY, f"version {_version()}, {loaded().kind} here")
    if job.arithmetic == LIBRARY:
        raise UsageError(f"jobs.train.arithmetic: {why}: set it to auto or tensorflow")
    return ChosenArithmetic(TENSORFLOW, why)


def _version() -> int:
    try:
        library = loaded()
    except (tf.errors.OpError, OSError) as problem:
        raise UsageError(
            f"jobs.train.arithmetic: {path()} cannot be loaded on this machine"
            f" ({str(problem).splitlines()[0]}): reinstall pscluster, or {REMEDY}"
        ) from None
    kind = os.environ.get(KIND, library.kind)
    if library.kind != kind:
        raise UsageError(
            f"{KIND}: this processor has no kind {kind!r}, it would compute as {library.kind}:"
            " unset it"
        )
    return library.version


def _outside_library(job: TrainJob, network: Network) -> str | None:
    if why := outside_library(job, own_model=not isinstance(network, BuiltIn)):
        return why
    if not LibraryOptimizer.knows(optimizer_of(job.optimizer)):
        return f"the library has no optimizer {job.optimizer.name}"
    if job.facts.in_steps and job.codec.name not in CODECS_IN_LIBRARY:
        return f"the library does not round as codec {job.codec.name} does"
    return None
