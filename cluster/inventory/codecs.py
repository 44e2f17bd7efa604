"""The codecs an inventory can name: what values look like on the wire. They run in `cluster.engine`."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.inventory.fields import Fraction, Section


class Fp32Codec(Section):
    """The float32 values themselves: 4 bytes a value."""

    name: Literal["fp32"] = Field("fp32", description="which codec this is")


class Fp16Codec(Section):
    """Halves with a scale for each block of 1,024: 2 bytes a value."""

    name: Literal["fp16"] = Field("fp16", description="which codec this is")


class TopKCodec(Section):
    """The largest gradients alone, the others kept for later, https://arxiv.org/abs/1712.01887: 8 bytes each."""

    name: Literal["topk"] = Field("topk", description="which codec this is")
    density: float = Field(0.01, gt=0.0, le=0.5, description="share of the gradient sent with each push")
    momentum: Fraction = Field(
        0.9, description="momentum on the worker, in place of the optimizer's; 0 with an optimizer that has its own"
    )


CodecConfig = Annotated[Fp32Codec | Fp16Codec | TopKCodec, Field(discriminator="name")]
"""One of the codecs; the key `name` says which."""
