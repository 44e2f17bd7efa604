"""How a long preparation tells the caller how far it is."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with the stage (`hashing`, `reading`, `writing`), what is done and what there is in all."""


def silent(stage: str, done: int, total: int) -> None:
    """For callers who do not ask."""
