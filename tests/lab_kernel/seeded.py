"""The disk with the environment of the lock on it, and the wheels of other machines."""

import os
from pathlib import Path

from deploy.release import requirements
from deploy.release.wheelhouse import CACHE, Wheelhouse, make_wheelhouse
from tests.lab.environment import PYTHON, environment_seed
from tests.lab_kernel.disk import disk


def wheelhouse(machine: str) -> Wheelhouse:
    """The wheels of the lock for a machine like `x86_64`, downloaded if need be.

    They lie in `$PSCLUSTER_WHEELS`, or where a deployment has them.
    """
    cache = Path(os.environ.get("PSCLUSTER_WHEELS") or CACHE)
    return make_wheelhouse(requirements.committed(), PYTHON, machine, cache=cache)


def seeded_disk() -> Path:
    """The image of `disk.disk` with the environment, as a deployment would have left it."""
    return disk(environment_seed())
