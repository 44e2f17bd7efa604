"""`optimizer: adagrad`: steps divided by the root of the sum of the gradient's squares."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import OptimizerOptions, PositiveFloat
from ps_node.optimizers import Optimizer


class AdagradOptions(OptimizerOptions):
    """Adagrad, https://jmlr.org/papers/v12/duchi11a.html: for rare features such as words."""

    name: Literal["adagrad"] = Field("adagrad", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(
        0.01, description="step size; with one_cycle the highest one"
    )
    epsilon: Annotated[
        float, Field(gt=0.0, le=1.0, description="added to the sum below the root")
    ] = 1e-7


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """sum += gradient^2; parameters -= rate gradient / sqrt(sum + epsilon).

    It follows Duchi et al., JMLR 2011.

    The form is that of `keras.optimizers.Adagrad`; the sum begins at 0 as in the paper, in Keras at
    0.1.
    """

    epsilon: float = 1e-7

    name = "adagrad"
    Options: ClassVar[type[OptimizerOptions]] = AdagradOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The sum of squares."""
        return ("sum_of_squares",)

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on tensors."""
        total = slots[0] + tf.square(gradient)
        return parameters - rate * gradient / tf.sqrt(total + self.epsilon), total[None]
