"""The resampler of a stream that may continue elsewhere: its state, and how it is resumed."""

import numpy as np

from core.data.intake import LARGEST_TIME_SECONDS, Resampler
from recognise.stream.parts import LARGEST_NUMBER, Part, UnpackedState, number, refuse


class ResumableResampler(Resampler):
    """A resampler whose state can be kept."""

    def state(self) -> dict[str, Part]:
        """Return what `resume` needs."""
        found: dict[str, Part] = {"grid_begin": self._begin, "steps": self._next}
        if self._last is not None:
            found |= {"time": self._last[0], "reading": self._last[1]}
        if self._state is None:
            return found
        return {**found, "aliases": self._state}

    def resume(self, kept: UnpackedState, inputs: int, largest: float) -> None:
        """Continue where another one of the same rates had this state. Raises UsageError.

        inputs: the values of a reading; largest: what their size may be.
        """
        begin = number(kept.value("grid_begin"), LARGEST_TIME_SECONDS, "grid_begin")
        steps = kept.count("steps")
        if not kept.has("time"):
            if begin or steps:
                raise refuse("no grid before the first reading", (begin, steps))
            return
        time = kept.array("time", np.float64, (1,), LARGEST_TIME_SECONDS)
        # A grid far behind the reading would become as many samples at once.
        if not abs(begin + steps / self._rate - float(time[0])) <= 2 / self._rate or not steps:
            raise refuse(
                "the grid's next step beside the last reading", (begin, steps, float(time[0]))
            )
        largest = max(largest, LARGEST_NUMBER)
        values = kept.array("reading", np.float64, (1, inputs), largest)
        if self._sections is not None:
            shape = (len(self._sections), 2, inputs)
            self._state = kept.array("aliases", np.float64, shape, largest)
        self._begin = begin
        self._next = steps
        self._last = (time, values)
