"""`mode: allreduce`: whole steps, exchanged among the workers."""

from core.consistency import WholeSteps
from core.inventory.extensions import ModeFacts


class Allreduce(WholeSteps, ModeFacts):
    """The workers hold the parameters and exchange gradients; one call a step spans all of them."""

    name = "allreduce"
    summary = "exchanges among the workers"
    update = "one step, exchanged among the workers"
    waits = "all workers"
    costs = (
        "the bits of `sync`; no parameter server's work; a lost worker restarts the run from its"
        " checkpoint"
    )
    parameters = "workers"
    in_steps = True
    repeatable = False
    mechanism = "cluster.jobs.modes.spanning:AllreduceMode"
    Options = None
