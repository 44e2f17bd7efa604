"""How workers agree: one module a mode, with its policy, its options and its facts.

A policy decides which piece of work may start where and when. It knows no socket, no clock and no
TensorFlow.
"""

EXTENSIONS = {
    "async": "asynchronous:Asynchronous",
    "ssp": "ssp:BoundedStaleness",
    "sync": "synchronous:Synchronous",
    "local": "local:LocalSteps",
    "allreduce": "allreduce:Allreduce",
    "single": "single:Single",
    "mirrored": "mirrored:Mirrored",
}
"""Module and class by the word in `jobs.train.mode`, in the order of the tables."""
