"""How values travel between workers and parameter servers, one module a codec."""

EXTENSIONS = {"fp32": "fp32:Fp32", "fp16": "fp16:Fp16", "topk": "topk:TopK"}
"""Module and class by `jobs.train.codec.name`, in the order of the tables."""
