"""`optimizer: lion`: the sign of an interpolated momentum, with decoupled weight decay."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import OptimizerOptions, PositiveFloat
from ps_node.optimizers import DecayBiases, DecayingOptimizer, WeightDecay


class LionOptions(OptimizerOptions):
    """Lion (https://arxiv.org/abs/2302.06675).

    Its steps are a third to a tenth as long as AdamW's, its decay as much larger.

    Every element moves by the whole rate, however small its gradient: use no codec that leaves
    values out.
    """

    name: Literal["lion"] = Field("lion", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(
        0.0003, description="step size; with one_cycle the highest one"
    )
    beta_1: Annotated[
        float, Field(ge=0.0, lt=1.0, description="share of the momentum in a step")
    ] = 0.9
    beta_2: Annotated[float, Field(ge=0.0, lt=1.0, description="decay of the momentum")] = 0.99
    weight_decay: WeightDecay = 0.1
    decay_biases: DecayBiases = False


@dataclass(frozen=True)
class Lion(DecayingOptimizer):
    """Lion (Chen et al., arXiv 2302.06675, algorithm 2).

    The decay comes before the step, as in `keras.optimizers.Lion`.
    """

    beta_1: float = 0.9
    beta_2: float = 0.99
    decay_biases: bool = False

    name = "lion"
    Options: ClassVar[type[OptimizerOptions]] = LionOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The momentum."""
        return ("momentum",)

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on tensors."""
        if self.weight_decay:
            parameters = self.shrunk(parameters, rate)
        direction = slots[0] * self.beta_1 + gradient * (1.0 - self.beta_1)
        momentum = slots[0] * self.beta_2 + gradient * (1.0 - self.beta_2)
        return parameters - rate * tf.sign(direction), momentum[None]
