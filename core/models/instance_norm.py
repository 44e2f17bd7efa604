"""Instance normalization: each channel of a window less its mean and over its deviation.

Ulyanov et al. 2016 (arXiv 1607.08022), over time instead of space and without trained scales. It
takes from a window what a person, a pocket and a phone add to all of its samples; gravity, which
says who sits and who stands, goes too, unless the windows as they are stay beside it.
"""

from dataclasses import dataclass, replace

from core.models.network import Problem
from core.models.operations import Operations, Tensor

STILL = 0.1
"""A channel that moves less than this, in deviations of the training windows, is hardly stretched:
it is noise."""


@dataclass(frozen=True)
class InstanceNorm:
    """What a recurrent network reads in place of its windows.

    `kind` is the model's key `instance_norm`.
    """

    kind: str
    window_problem: Problem

    @property
    def problem(self) -> Problem:
        """The problem of the layers behind it: `append` doubles the channels."""
        if self.kind != "append":
            return self.window_problem
        return replace(
            self.window_problem,
            input_shape=(self.window_problem.window_steps, 2 * self.window_problem.channels),
        )

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, steps, channels of `problem`) from (batch, steps, channels)."""
        if self.kind == "none":
            return windows
        normed = ops.window_norm(windows, STILL * STILL)
        if self.kind == "replace":
            return normed
        return ops.concat([windows, normed], 2)
