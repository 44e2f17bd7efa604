"""A model computes in a process of its own, which can be killed: windows in, logits out."""
