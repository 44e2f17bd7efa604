"""`optimizer: adamw`."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from cluster.inventory.fields import OptimizerOptions, PositiveFloat
from ps_node.optimizers.adam import Adam, Beta1, Beta2, Epsilon


class AdamWOptions(OptimizerOptions):
    """Adam with decoupled weight decay, https://arxiv.org/abs/1711.05101; the decay's default is PyTorch's."""

    name: Literal["adamw"] = Field("adamw", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(0.002, description="step size; with one_cycle the highest one")
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8
    weight_decay: float = Field(0.01, ge=0.0, lt=1.0, description="share of a weight lost per update, times the step")


@dataclass(frozen=True)
class AdamW(Adam):
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101).

    Parameters shrink by `rate * weight_decay` before the Adam step, as in PyTorch's AdamW.
    """

    weight_decay: float = 0.01

    name = "adamw"
    Options = AdamWOptions
