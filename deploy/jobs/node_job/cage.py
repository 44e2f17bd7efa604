"""What the process of a job may change on its node: it runs code of an app, a program or a run.

It reads what its account may. Landlock takes away other jobs' folders, and all processes but those
that it starts; a filter takes away calls.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from core.cage.calls import JOB, WholeCage
from core.cage.landlock import Cage, Rights, existing
from core.logs import say

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def cage_of(folder: Path, writes: Sequence[str]) -> Cage | None:
    """Return the cage of a job in `folder`, which also writes these; None where `writes` is empty.

    A mount that is made at its first use is made now. A line says what this kernel does not hold.
    Raises OSError.
    """
    if not writes:
        return None
    mounted_paths = (os.path.join(path, ".") for path in writes)
    cage = WholeCage(
        Rights(
            read=("/",), write=(folder, *existing(*mounted_paths, *TEMPORARY)), devices=("/dev",)
        ),
        JOB,
    )
    if cage.caged.level != logging.INFO:
        say(f"{folder.name}: {cage.caged.line}", error=True)
    return cage
