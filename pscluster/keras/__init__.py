"""Keras layers with this project's kernels: drop-ins for Keras's own, with the same weights and results."""

from pscluster.keras.lstm import LSTM

__all__ = ["LSTM"]
