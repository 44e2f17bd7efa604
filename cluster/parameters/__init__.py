"""The flat parameter vector."""

from cluster.parameters.layout import BLOCK, Layout, ParameterSpec, Shard, Slot

__all__ = ["BLOCK", "Layout", "ParameterSpec", "Shard", "Slot"]
