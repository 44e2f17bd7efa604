"""The networks, one module each, and what they are built from and trained with."""

EXTENSIONS = {
    "thesis": "thesis:Thesis",
    "residual": "residual:Residual",
    "dblstm": "dblstm:DeepBidirectional",
    "conv-lstm": "conv_lstm:ConvolutionalLstm",
    "kth": "kth:Kth",
    "spectral": "spectral:Spectral",
    "hybrid": "hybrid:Hybrid",
}
"""Module and class by `jobs.train.model.name`, in the order of the tables."""
