"""`mode: mirrored`: whole steps on all devices of one machine."""

from cluster.consistency.policy import WholeSteps
from cluster.inventory.extensions import ModeFacts


class Mirrored(WholeSteps, ModeFacts):
    """One process; each of its devices computes a share of a step's micro-batches from its own copy."""

    name = "mirrored"
    summary = "is one process with all devices of its machine"
    update = "one step on all devices of the coordinator's machine"
    waits = "all devices"
    costs = "the bits of `sync`; the parameters go to each device, a sum comes back. No role needs to run"
    parameters = "coordinator"
    in_steps = True
    repeatable = False
    mechanism = "cluster.jobs.modes.mirrored:MirroredMode"
    Options = None

    @classmethod
    def spans_devices(cls) -> bool:
        """See ModeFacts."""
        return True
