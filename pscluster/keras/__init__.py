"""Keras layers that the native library computes: weights and results are those of Keras's own."""

from core.models.operations import portable_operations
from pscluster.keras.library import LSTM, Dense

__all__ = ["LSTM", "Dense", "portable_operations"]
