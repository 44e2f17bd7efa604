"""pscluster from Python: train a model on a cluster from a program or a notebook.

`Cluster` is a cluster by its inventory, `local` one of processes on this machine, `Run` what a training left, `Data`
arrays to train on, `pscluster.keras` Keras layers with this project's kernels. Importing this loads none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, DataError, UsageError

if TYPE_CHECKING:
    from cluster.data.examples import Data
    from pscluster import keras
    from pscluster.cluster import Cluster, local
    from pscluster.commands import Cancelled
    from pscluster.run import Run

    __version__: str

__all__ = ["Cancelled", "Cluster", "ClusterError", "Data", "DataError", "Run", "UsageError", "keras", "local"]

_PLACES = {
    "Cancelled": "pscluster.commands",
    "Cluster": "pscluster.cluster",
    "Data": "cluster.data.examples",
    "Run": "pscluster.run",
    "local": "pscluster.cluster",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("pscluster.version").own_version()
    if name == "keras":
        return import_module("pscluster.keras")
    if name not in _PLACES:
        raise AttributeError(f"module 'pscluster' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_PLACES[name]), name)
