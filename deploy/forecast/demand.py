"""Memory that is needed on a node, and what the node may give."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.converge.machine_facts import LARGEST_SHARE


@dataclass(frozen=True)
class MemoryDemand:
    """Bytes that are `needed` on a node, and its `limit`, which is None where it is not known."""

    node: str
    needed: int
    limit: int | None

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as that is known."""
        return self.limit is None or self.needed <= self.limit


def limits_of(memory: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that roles may take on each node, from its memory."""
    return {node: int(LARGEST_SHARE * size) for node, size in memory.items()}
