"""`mode: mirrored`: one function a step over all devices of this machine.

The processor's memory has the parameters. Each device gets a copy of them, computes its
slots, and adds them up to aligned subtrees. Their sums meet on the processor in the tree of
all synchronous steps, so that the bits are those of `single`.
"""

from cluster.jobs.modes.allreduce import AllreduceMode, runs_of
from cluster.jobs.modes.mode import Setup
from core.consistency import Speeds


class MirroredMode(AllreduceMode):
    """The exchange of `allreduce` with one shard; devices of one machine count as equally fast."""

    def _shared_out(self, setup: Setup) -> list[range]:
        return runs_of(setup.job.pieces, range(len(setup.computing)), Speeds())
