"""The networks, one module each, as pure functions of (parameters, windows), and the LSTM kernels under them."""

from cluster.inventory.extensions import MODELS
from cluster.inventory.fields import Choice
from cluster.models.network import Network, Output, Problem

__all__ = ["Network", "Output", "Problem", "build"]

EXTENSIONS = {
    "thesis": "thesis:Thesis",
    "residual": "residual:Residual",
    "dblstm": "dblstm:DeepBidirectional",
    "conv-lstm": "conv_lstm:ConvolutionalLstm",
}
"""By `jobs.train.model.name`: module and class, in the order of the tables."""


def build(config: Choice, *, window_steps: int, channels: int, classes: int, keep_probability: float = 1.0) -> Network:
    """The network of a job's section `model`, for windows of shape (window_steps, channels).

    `keep_probability` is the share of units its dropout keeps in training. Every valid `config` can be built.
    """
    network: Network = MODELS[config.name](config, Problem(window_steps, channels, classes, keep_probability))  # type: ignore[call-arg, assignment]
    return network
