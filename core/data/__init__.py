"""Recordings: where they are looked for, how they are read, and what training maps of them.

The room's doors are `find_source`, `prepare`, `Dataset`, `open_prepared` and `split_validation`. A
kind of recordings is one class.
"""

from core.data.dataset import Dataset, open_prepared
from core.data.prepare import prepare
from core.data.source import Source, find_source
from core.data.split import split_validation

__all__ = ["Dataset", "Source", "find_source", "open_prepared", "prepare", "split_validation"]

EXTENSIONS = {
    "hapt": "described.reader:Hapt",
    "uci-har": "uci_har:UciHar",
    "npz": "npz:Npz",
    "hhar": "described.reader:Hhar",
    "described": "described.reader:Described",
    "sets": "described.sets:Sets",
    "synthetic": "synthetic:Synthetic",
}
"""Module and class by kind, in the order of the tables."""
