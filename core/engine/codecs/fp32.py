"""`codec: fp32`: the values themselves."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.engine.codecs import Codec
from core.ground.lazy import tf
from core.inventory.fields import Choice


class Fp32Codec(Choice):
    """The float32 values themselves: 4 bytes a value."""

    name: Literal["fp32"] = Field("fp32", description="which codec this is")


@dataclass(frozen=True)
class Fp32(Codec):
    """The values themselves, every bit of them."""

    name = "fp32"
    travels = "the float32 values: 4 bytes a value"
    keeps_back = False
    Options = Fp32Codec

    def words(self, size: int) -> int:
        """One a value."""
        return size

    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """The values."""
        return values, memory

    def decode(self, wire: Any, size: int) -> Any:
        """The values."""
        return tf.ensure_shape(wire, [size])
