"""`mode: single`: whole steps, in one process."""

from core.consistency import WholeSteps
from core.inventory.extensions import ModeFacts


class Single(WholeSteps, ModeFacts):
    """One process computes every step: the baseline without a cluster."""

    name = "single"
    summary = "is one process without a cluster"
    update = "one step in the coordinator's own process"
    waits = "-"
    costs = "the bits of `sync`; no cluster: the baseline. No role needs to run"
    parameters = "coordinator"
    in_steps = True
    repeatable = True
    mechanism = "cluster.jobs.modes.steps:SynchronousMode"
    Options = None
