"""What a checkpoint is: a cut through the updates, and everything that training goes on with from there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


# eq=False: comparing the arrays has no single truth value, so `==` would raise.
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A consistent cut: every update with an id below `update` is applied, none at or above.

    `tensors` are named arrays of any shape: parameters, statistics, optimizer slots. `facts` is everything else, as
    JSON has it: objects with text as keys, lists, text, numbers of any size, booleans, null. Numbers may be NaN or
    infinite; tuples come back as lists.
    """

    update: int
    tensors: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
