"""The optimizers and learning-rate schedules an inventory can name. Their updates run in `cluster.engine`."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.inventory.fields import Fraction, PositiveFloat, Section

Beta1 = Annotated[float, Field(ge=0.0, lt=1.0, description="decay of the running mean of the gradient")]
Beta2 = Annotated[float, Field(ge=0.0, lt=1.0, description="decay of the running mean of its square")]
Epsilon = Annotated[float, Field(gt=0.0, le=1.0, description="added to the root of the second moment")]


class Adam(Section):
    """Adam, https://arxiv.org/abs/1412.6980; the defaults are the paper's and the thesis's."""

    name: Literal["adam"] = Field("adam", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(0.001, description="step size; with one_cycle the highest one")
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8


class AdamW(Section):
    """Adam with decoupled weight decay, https://arxiv.org/abs/1711.05101; the decay's default is PyTorch's."""

    name: Literal["adamw"] = Field("adamw", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(0.002, description="step size; with one_cycle the highest one")
    beta_1: Beta1 = 0.9
    beta_2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8
    weight_decay: float = Field(0.01, ge=0.0, lt=1.0, description="share of a weight lost per update, times the step")


class Sgd(Section):
    """Stochastic gradient descent with heavy-ball momentum."""

    name: Literal["sgd"] = Field("sgd", description="which optimizer this is")
    learning_rate: PositiveFloat = Field(0.1, description="step size; with one_cycle the highest one")
    momentum: Fraction = Field(0.9, description="share of the last update kept in the next; 0 is plain descent")


OptimizerConfig = Annotated[Adam | AdamW | Sgd, Field(discriminator="name")]
"""One of the optimizers; the key `name` says which."""


class Constant(Section):
    """The same learning rate in every update."""

    name: Literal["constant"] = Field("constant", description="which schedule this is")


class OneCycle(Section):
    """Cosine up to the learning rate, then cosine down to almost nothing, https://arxiv.org/abs/1708.07120.

    The divisors are those of PyTorch's OneCycleLR, with which the figures of the design were measured.
    """

    name: Literal["one_cycle"] = Field("one_cycle", description="which schedule this is")
    warmup_fraction: Fraction = Field(0.3, description="share of all updates in which the rate rises")
    initial_divisor: float = Field(25.0, ge=1.0, description="the first rate is the highest one divided by this")
    final_divisor: float = Field(10_000.0, ge=1.0, description="the last rate is the first one divided by this")


ScheduleConfig = Annotated[OneCycle | Constant, Field(discriminator="name")]
"""One of the schedules; the key `name` says which."""
