"""pscluster from Python: train a model on a cluster from a program or a notebook.

`Cluster` is the cluster of an inventory, `local` one of processes on this machine. `Run`,
`CrossValidation` and `Sweep` read what a job left, `Data` holds arrays to train on, and
`pscluster.keras` has Keras layers with this project's kernels. `import pscluster` loads none of
them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError, DataError, UsageError

if TYPE_CHECKING:
    from core.data.prepare import Data
    from pscluster import keras
    from pscluster.cluster import Cluster, local
    from pscluster.commands import Cancelled
    from pscluster.run import CrossValidation, Run, Sweep

    __version__: str

__all__ = [
    "Cancelled",
    "Cluster",
    "ClusterError",
    "CrossValidation",
    "Data",
    "DataError",
    "Run",
    "Sweep",
    "UsageError",
    "keras",
    "local",
]

_PLACES = {
    "Cancelled": "pscluster.commands",
    "Cluster": "pscluster.cluster",
    "CrossValidation": "pscluster.run",
    "Data": "core.data.prepare",
    "Run": "pscluster.run",
    "Sweep": "pscluster.run",
    "local": "pscluster.cluster",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("pscluster.version").own_version()
    if name == "keras":
        return import_module("pscluster.keras")
    if name not in _PLACES:
        raise AttributeError(
            f"module 'pscluster' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(import_module(_PLACES[name]), name)
