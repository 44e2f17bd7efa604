"""`optimizer: sgd`: plain gradient descent, or with momentum."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import Fraction, OptimizerOptions, PositiveFloat
from ps_node.optimizers import Optimizer


class SgdOptions(OptimizerOptions):
    """Stochastic gradient descent with heavy-ball momentum."""

    name: Literal["sgd"] = Field("sgd", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(
        0.1, description="step size; with one_cycle the highest one"
    )
    momentum: Fraction = Field(
        0.9, description="share of the last update kept in the next; 0 is plain descent"
    )
    nesterov: bool = Field(False, description="whether the momentum looks ahead (Nesterov)")


@dataclass(frozen=True)
class MomentumSGD(Optimizer):
    """Stochastic gradient descent with classical momentum.

    v = momentum * v - rate * gradient; parameters += v.

    With `nesterov` parameters += momentum * v - rate * gradient instead (Sutskever et al., ICML
    2013, section 2).
    """

    momentum: float = 0.0
    nesterov: bool = False

    name = "sgd"
    Options = SgdOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The velocity, if there is any momentum."""
        if self.momentum:
            return ("velocity",)
        return ()

    def apply(
        self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any
    ) -> Any:
        """One step."""
        if not slots:
            return tf.raw_ops.ResourceApplyGradientDescent(
                var=parameters.handle, alpha=rate, delta=gradient, use_locking=True
            )
        return tf.raw_ops.ResourceApplyKerasMomentum(
            var=parameters.handle,
            accum=slots[0].handle,
            lr=rate,
            grad=gradient,
            momentum=self.momentum,
            use_nesterov=self.nesterov,
            use_locking=True,
        )

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on tensors."""
        if not self.momentum:
            return parameters - rate * gradient, slots
        velocity = self.momentum * slots[0] - rate * gradient
        if self.nesterov:
            change = self.momentum * velocity - rate * gradient
        else:
            change = velocity
        return parameters + change, velocity[None]
