"""How workers agree: which piece of work may start where and when, decided without sockets, clocks or TensorFlow."""

from cluster.consistency.asynchronous import Asynchronous, BoundedStaleness
from cluster.consistency.policy import Grant, Policy
from cluster.consistency.speeds import Speeds
from cluster.consistency.synchronous import Synchronous, WholeSteps

__all__ = ["Asynchronous", "BoundedStaleness", "Grant", "Policy", "Speeds", "Synchronous", "WholeSteps"]
