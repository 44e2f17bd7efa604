"""Modules that Python loads when they are first needed: a process that changes its account loads them before.

The account may not read the Python that runs it, below /root for instance. What a role does once it serves is done
once here, or named.
"""

import encodings.idna  # noqa: F401  (a host given by name, or an address as text)
import traceback

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

ACCEPTED = ("", "application/openmetrics-text; version=1.0.0")
"""What a browser and what a Prometheus ask for."""


def load(registry: CollectorRegistry) -> None:
    """Have all modules loaded that a scrape, a request and an error need."""
    for accepted in ACCEPTED:
        encode, _ = choose_encoder(accepted)
        encode(registry)
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()
