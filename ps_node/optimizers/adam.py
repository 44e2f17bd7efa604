"""`optimizer: adam` and `optimizer: adamw`."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.fields import OptimizerOptions, PositiveFloat
from ps_node.optimizers import DecayBiases, DecayingOptimizer, WeightDecay

Beta1 = Annotated[
    float, Field(ge=0.0, lt=1.0, description="decay of the running mean of the gradient")
]
Beta2 = Annotated[
    float, Field(ge=0.0, lt=1.0, description="decay of the running mean of its square")
]
Epsilon = Annotated[
    float, Field(gt=0.0, le=1.0, description="added to the root of the second moment")
]


class AdamOptions(OptimizerOptions):
    """Adam, https://arxiv.org/abs/1412.6980; the defaults are the paper's and the thesis's."""

    name: Literal["adam"] = Field("adam", description="which optimizer this is")
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8


@dataclass(frozen=True)
class Adam(DecayingOptimizer):
    """Adam (Kingma & Ba, arXiv 1412.6980). It has no weight decay: AdamW has."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    name = "adam"
    Options: ClassVar[type[OptimizerOptions]] = AdamOptions

    @property
    def slot_names(self) -> tuple[str, ...]:
        """First and second moment."""
        return ("first_moment", "second_moment")

    def apply(
        self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any
    ) -> Any:
        """One fused Adam step."""
        step = tf.cast(count + 1, tf.float32)
        before = []
        if self.weight_decay:
            before.append(
                parameters.assign(self.shrunk(parameters.read_value(), rate), read_value=False)
            )
        with tf.control_dependencies(before):
            return tf.raw_ops.ResourceApplyAdam(
                var=parameters.handle,
                m=slots[0].handle,
                v=slots[1].handle,
                beta1_power=tf.pow(tf.constant(self.beta_1), step),
                beta2_power=tf.pow(tf.constant(self.beta_2), step),
                lr=rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
                use_locking=True,
            )

    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One Adam step on tensors, in the order of the fused operation."""
        step = tf.cast(count + 1, tf.float32)
        if self.weight_decay:
            parameters = self.shrunk(parameters, rate)
        first = slots[0] + (gradient - slots[0]) * (1.0 - self.beta_1)
        second = slots[1] + (tf.square(gradient) - slots[1]) * (1.0 - self.beta_2)
        corrected = (
            rate * tf.sqrt(1.0 - tf.pow(self.beta_2, step)) / (1.0 - tf.pow(self.beta_1, step))
        )
        return parameters - first * corrected / (tf.sqrt(second) + self.epsilon), tf.stack(
            [first, second]
        )


class AdamWOptions(OptimizerOptions):
    """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101).

    The decay's default is PyTorch's.
    """

    name: Literal["adamw"] = Field("adamw", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(
        0.002, description="step size; with one_cycle the highest one"
    )
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.01
    decay_biases: DecayBiases = True


@dataclass(frozen=True)
class AdamW(Adam):
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101).

    Parameters shrink by `rate * weight_decay` before the Adam step, as in PyTorch's AdamW: by
    default all of them, because the figures of the shipped recipe were measured so.
    """

    weight_decay: float = 0.01

    name = "adamw"
    Options = AdamWOptions
