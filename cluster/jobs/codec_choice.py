"""From an inventory's `codec` entry to the engine's codec."""

from cluster.engine.codecs import Codec, Fp16, Fp32, TopK
from cluster.inventory.codecs import CodecConfig, Fp16Codec, TopKCodec


def wire_codecs(config: CodecConfig) -> tuple[Codec, Codec]:
    """What pulls and what pushes travel in."""
    push = codec_of(config)
    # What is pulled is whole: a codec that keeps something back is for changes alone.
    return push if push.stateless else Fp32(), push


def codec_of(config: CodecConfig) -> Codec:
    """The engine's codec that an inventory's `codec` entry asks for."""
    match config:
        case TopKCodec():
            return TopK(config.density, config.momentum)
        case Fp16Codec():
            return Fp16()
        case _:
            return Fp32()
