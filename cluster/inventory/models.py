"""The networks an inventory can name, and the knobs of each. What they compute is in `cluster.models`."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cluster.inventory.fields import Section

Hidden = Annotated[int, Field(ge=8, le=256, description="units of each recurrent layer, per direction")]


class ThesisModel(Section):
    """The thesis's family: stacked LSTM layers, each behind a projection with ReLU, with optional residual cells."""

    name: Literal["thesis"] = Field("thesis", description="which network this is")
    n_layers_in_highway: int = Field(0, ge=0, le=8, description="residual cells summed within each layer; 0 is plain")
    n_stacked_layers: int = Field(3, ge=1, le=8, description="layers on top of each other")
    bidirectional: bool = Field(False, description="read each window forwards and backwards")
    hidden: int = Field(32, ge=8, le=256, description="width of each layer; a bidirectional one gives each way half")
    batch_norm: bool = Field(False, description="normalize each time step over batch and features after each layer")
    bias_mean: float = Field(0.3, ge=-10, le=10, description="mean of the initial biases of the projections")

    @field_validator("hidden")
    @classmethod
    def _can_be_halved(cls, hidden: int, known: ValidationInfo) -> int:
        if hidden % 2 and known.data.get("bidirectional"):
            raise PydanticCustomError(
                "even", "a bidirectional layer gives each way half of an even number", {"remedy": f"write {hidden + 1}"}
            )
        return hidden


class ResidualModel(Section):
    """A stack of pre-norm residual bi-LSTM layers, x + f(norm(x)), averaged over time."""

    name: Literal["residual"] = Field("residual", description="which network this is")
    hidden: Hidden = 32
    layers: int = Field(3, ge=1, le=8, description="residual layers")


class DeepBidirectionalModel(Section):
    """Two bi-LSTM layers of 128 units each way, one LSTM of 64: exactly 618,118 parameters on nine channels."""

    name: Literal["dblstm"] = Field("dblstm", description="which network this is")


class ConvolutionalModel(Section):
    """Two strided convolutions that shorten the window, then bi-LSTM layers."""

    name: Literal["conv-lstm"] = Field("conv-lstm", description="which network this is")
    filters: int = Field(64, ge=8, le=256, description="channels of each convolution")
    hidden: Hidden = 64
    layers: int = Field(2, ge=1, le=8, description="bi-LSTM layers")


ModelConfig = Annotated[
    ThesisModel | ResidualModel | DeepBidirectionalModel | ConvolutionalModel, Field(discriminator="name")
]
"""One of the networks; the key `name` says which."""
