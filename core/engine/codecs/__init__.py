"""How values travel between workers and parameter servers, one module a codec."""

EXTENSIONS = {"fp32": "fp32:Fp32", "fp16": "fp16:Fp16", "topk": "topk:TopK"}
"""By `jobs.train.codec.name`: module and class, in the order of the tables."""
