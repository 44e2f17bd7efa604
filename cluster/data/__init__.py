"""Recordings: where they are looked for, how they are read, and the prepared windows that training maps.

The room's doors are `find_source`, `prepare`, `Dataset`, `open_prepared` and `split_validation`. A kind of recordings
is one module.
"""

from cluster.data.dataset import Dataset, open_prepared
from cluster.data.prepare import prepare
from cluster.data.source import Source, find_source
from cluster.data.split import split_validation

__all__ = ["Dataset", "Source", "find_source", "open_prepared", "prepare", "split_validation"]

EXTENSIONS = {
    "hapt": "hapt:Hapt",
    "uci-har": "uci_har:UciHar",
    "npz": "npz:Npz",
    "hhar": "hhar:Hhar",
    "csv": "csv_file:Csv",
    "parquet": "parquet_file:Parquet",
    "images": "images:Images",
    "audio": "audio:Audio",
    "synthetic": "synthetic:Synthetic",
}
"""By kind: module and class, in the order of the tables."""
