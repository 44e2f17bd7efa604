"""`connection: ssh`: placeholder until jobs are merged."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.inventory import Inventory


class SshServices:
    """Placeholder."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        pass

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """Placeholder."""
        raise NotImplementedError
