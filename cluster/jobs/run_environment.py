"""What a job runs on: versions of this process, and its machine, for the run's `environment.json`."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from cluster import __version__
from cluster.metrics.processor import processor
from cluster.metrics.standard import tensorflow_version


def environment() -> dict[str, Any]:
    """As it stands in the file."""
    return {
        "schema": 1,
        "pscluster": __version__,
        "tensorflow": tensorflow_version(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "system": platform.platform(),
        "processor": processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
