"""How each built-in network is written in the vocabulary of `cluster.export.writer`, one module each."""

EXTENSIONS = {
    "thesis": "thesis:Thesis",
    "residual": "residual:Residual",
    "dblstm": "dblstm:DeepBidirectional",
    "conv-lstm": "conv_lstm:ConvolutionalLstm",
    "kth": "kth:Kth",
    "spectral": "spectral:Spectral",
    "hybrid": "hybrid:Hybrid",
}
"""By the network's name: module and class, in the order of the tables."""
