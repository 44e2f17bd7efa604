"""`optimizer: rmsprop`: steps divided by the root of a running mean of the gradient's square."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import Fraction, OptimizerOptions
from ps_node.optimizers import Optimizer


class RMSpropOptions(OptimizerOptions):
    """RMSprop (Tieleman & Hinton, lecture 6.5 of 2012).

    Form and defaults are those of `keras.optimizers.RMSprop`.
    """

    name: Literal["rmsprop"] = Field("rmsprop", description="which optimizer this is")
    rho: Annotated[
        float, Field(ge=0.0, lt=1.0, description="decay of the running mean of the square")
    ] = 0.9
    momentum: Fraction = Field(
        0.0, description="share of the last update kept in the next; 0 is none"
    )
    epsilon: Annotated[
        float, Field(gt=0.0, le=1.0, description="added to the mean below the root")
    ] = 1e-7


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """parameters -= rate gradient / sqrt(mean + epsilon), after the mean took gradient^2.

    mean = rho mean + (1 - rho) gradient^2.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7

    name = "rmsprop"
    Options: ClassVar[type[OptimizerOptions]] = RMSpropOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The mean square, and the momentum if there is any."""
        if self.momentum:
            return ("mean_square", "momentum")
        return ("mean_square",)

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on tensors."""
        mean = self.rho * slots[0] + (1.0 - self.rho) * tf.square(gradient)
        change = rate * gradient / tf.sqrt(mean + self.epsilon)
        if not self.momentum:
            return parameters - change, mean[None]
        change = self.momentum * slots[1] + change
        return parameters - change, tf.stack([mean, change])
