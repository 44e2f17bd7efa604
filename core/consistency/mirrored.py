"""`mode: mirrored`: whole steps on all devices of one machine."""

from core.consistency import WholeSteps
from core.inventory.extensions import ModeFacts


class Mirrored(WholeSteps, ModeFacts):
    """One process whose devices each compute a share of a step from a copy of their own."""

    name = "mirrored"
    summary = "is one process with all devices of its machine"
    update = "one step on all devices of the coordinator's machine"
    waits = "all devices"
    costs = (
        "the bits of `sync`; the parameters go to each device, a sum comes back. No role needs"
        " to run"
    )
    parameters = "coordinator"
    in_steps = True
    repeatable = False
    mechanism = "cluster.jobs.modes.spanning:MirroredMode"
    Options = None

    @classmethod
    def spans_devices(cls) -> bool:
        """Return True."""
        return True
