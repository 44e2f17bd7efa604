"""The networks, as pure functions of (parameters, windows), and the LSTM kernels under them."""

from cluster.inventory.models import (
    ConvolutionalModel,
    DeepBidirectionalModel,
    ModelConfig,
    ResidualModel,
    ThesisModel,
)
from cluster.models.conv_lstm import ConvolutionalLstm
from cluster.models.dblstm import DeepBidirectional
from cluster.models.network import Network, Output, Problem
from cluster.models.residual import Residual
from cluster.models.thesis import Thesis

__all__ = ["Network", "Output", "Problem", "build"]


def build(
    config: ModelConfig, *, window_steps: int, channels: int, classes: int, keep_probability: float = 1.0
) -> Network:
    """The network an inventory's `model` entry asks for, for windows of shape (window_steps, channels).

    `keep_probability` is the share of units its dropout keeps in training. Every `config` the inventory lets through
    can be built.
    """
    problem = Problem(window_steps, channels, classes, keep_probability)
    match config:
        case ThesisModel():
            return Thesis(config, problem)
        case ResidualModel():
            return Residual(config, problem)
        case DeepBidirectionalModel():
            return DeepBidirectional(config, problem)
        case ConvolutionalModel():
            return ConvolutionalLstm(config, problem)
