"""Constraints: functions of a weight that are applied after each update, where the weight is."""

from typing import Any

from core.ground.lazy import tf
from core.parameters import Layout


class Constraints:
    """The constraints on elements [start, stop) of the trained vector.

    Weights that have one lie whole in there.
    """

    def __init__(self, layout: Layout, trained: tuple[int, int]) -> None:
        start, stop = trained
        self._slots = [slot for slot in layout.constrained if start <= slot.offset < stop]
        self._sizes = list[int]()
        end = start
        for slot in self._slots:
            self._sizes += [slot.offset - end, slot.spec.size]
            end = slot.offset + slot.spec.size
        self._sizes.append(stop - end)

    def __bool__(self) -> bool:
        return bool(self._slots)

    def applied(self, parameters: Any) -> Any:
        """Return `parameters`, (stop - start,), constrained; the other elements keep every bit."""
        pieces = tf.split(parameters, self._sizes)
        for place, slot in enumerate(self._slots):
            spec = slot.spec
            assert spec.constraint is not None
            weight = spec.constraint(tf.reshape(pieces[2 * place + 1], spec.shape))
            pieces[2 * place + 1] = tf.reshape(weight, [-1])
        return tf.concat(pieces, 0)
