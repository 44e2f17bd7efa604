"""The networks, one module each, as pure functions of (parameters, windows), and the LSTM kernels under them."""

EXTENSIONS = {
    "thesis": "thesis:Thesis",
    "residual": "residual:Residual",
    "dblstm": "dblstm:DeepBidirectional",
    "conv-lstm": "conv_lstm:ConvolutionalLstm",
    "kth": "kth:Kth",
    "spectral": "spectral:Spectral",
    "hybrid": "hybrid:Hybrid",
}
"""By `jobs.train.model.name`: module and class, in the order of the tables."""
