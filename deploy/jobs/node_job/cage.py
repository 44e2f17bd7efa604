"""What the process of a job may change on its node: it runs code of an app, a program or a run.

It reads what its account may. Landlock takes away other jobs' folders, and all processes but those
that it starts.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from core.cage import landlock
from core.cage.landlock import Cage, Rights, existing

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def cage_of(folder: Path, writes: Sequence[str]) -> Cage | None:
    """Return the cage of a job in `folder`, which also writes these; None where `writes` is empty.

    A mount that is made at its first use is made now. The first Landlock refuses every move from
    folder to folder, which libraries need: with it there is no cage. Raises OSError.
    """
    if not writes or landlock.abi() == landlock.FILES:
        return None
    others = (os.path.join(path, ".") for path in writes)
    return Cage(
        Rights(read=("/",), write=(folder, *existing(*others, *TEMPORARY)), devices=("/dev",))
    )
