"""Keras layers that the native library computes: weights and results are those of Keras's own."""

from core.models.operations import portable_operations
from pscluster.keras.dense import Dense
from pscluster.keras.lstm import LSTM

__all__ = ["LSTM", "Dense", "portable_operations"]
