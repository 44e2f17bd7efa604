"""The networks, as pure functions of (parameters, windows), and the LSTM kernels under them."""

from typing import Any

from cluster.errors import UsageError
from cluster.models.network import Network, Output, Problem
from cluster.models.thesis import Thesis

__all__ = ["Network", "Output", "Problem", "build"]


def build(config: Any, *, window_steps: int, channels: int, classes: int, keep_probability: float) -> Network:
    """The network an inventory's `model` entry asks for.

    Raises UsageError for a model name that does not exist.
    """
    problem = Problem(window_steps, channels, classes)
    if config.name == "thesis":
        return Thesis(config, problem, keep_probability)
    raise UsageError(f"unknown model {config.name!r}: expected thesis")
