"""From an inventory's `codec` entry to the engine's codec."""

from cluster.engine.codecs import Codec, Fp16, Fp32, TopK
from cluster.inventory.codecs import CodecConfig, Fp16Codec, TopKCodec


def codec_of(config: CodecConfig) -> Codec:
    """The engine's codec that an inventory's `codec` entry asks for."""
    match config:
        case TopKCodec():
            return TopK(config.density, config.momentum)
        case Fp16Codec():
            return Fp16()
        case _:
            return Fp32()
