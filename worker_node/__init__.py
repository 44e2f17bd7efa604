"""The process of a worker: computes what the coordinator sends to it."""
