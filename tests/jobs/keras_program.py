"""`python -m tests.jobs.keras_program JOB ...`: the coordinator, with a Keras model for the built-in network."""

import os
import sys
from typing import Any

from cluster.__main__ import main
from cluster.jobs import train
from cluster.models.network import Network, Problem
from tests.models.of_keras import OfKeras, recurrent


def build(config: Any, *, window_steps: int, channels: int, classes: int, keep_probability: float = 1.0) -> Network:
    """In the place of `cluster.models.network.build`."""
    return OfKeras(recurrent, Problem(window_steps, channels, classes, keep_probability))


if __name__ == "__main__":
    train.build = build  # type: ignore[attr-defined]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
