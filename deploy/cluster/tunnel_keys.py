"""The nodes' public keys of WireGuard, pinned beside their host keys."""

import binascii
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from core.ground.errors import ClusterError, reason_of
from core.ground.files import atomic_write, parsed_json

FILE = "wireguard_keys.json"
"""File in the cluster's state folder."""
IN_CLEAR = (
    "plain: TensorFlow, NFS and metrics cross the switch in clear; `transport: wireguard` in the"
    " inventory encrypts them"
)
KEY_BYTES = 32
MOST_BYTES = 1 << 20


def is_key(text: object) -> bool:
    """Whether this is 32 bytes in base64, as WireGuard writes a key."""
    if not isinstance(text, str) or len(text) != 44:
        return False
    try:
        return len(binascii.a2b_base64(text, strict_mode=True)) == KEY_BYTES
    except (ValueError, binascii.Error):
        return False


class TunnelKeys:
    """One public key a node. Without a file the keys are known to this process alone."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the pinned keys. Raises ClusterError for a file that has others."""
        self._path = path
        self._lock = threading.Lock()
        self._known = _read(path)
        self._replaced: set[str] = set()

    @property
    def known(self) -> Mapping[str, str]:
        """The pinned key of each node."""
        return MappingProxyType(self._known)

    @property
    def replaced(self) -> frozenset[str]:
        """The nodes that are to make new keys in this run, and have not yet."""
        return frozenset(self._replaced)

    def replace(self, names: Iterable[str]) -> None:
        """Let these nodes make new keys, which take the place of what is pinned."""
        self._replaced.update(names)

    def forget(self, names: Iterable[str]) -> None:
        """Drop the keys of nodes that this machine took theirs from."""
        with self._lock:
            gone = [name for name in names if self._known.pop(name, None) is not None]
            if gone:
                self._keep()

    def pin(self, node: str, key: str) -> None:
        """Keep a node's key. Raises ClusterError where another one is pinned."""
        if not is_key(key):
            raise ClusterError(f"{node}: expected a public key of WireGuard, got {key!r:.80}")
        with self._lock:
            if self._known.get(node, key) != key and node not in self._replaced:
                raise ClusterError(f"{node}: {changed(node, self._known[node], key)}")
            self._known[node] = key
            self._replaced.discard(node)
            self._keep()

    def _keep(self) -> None:
        if self._path is not None:
            text = json.dumps(self._known, indent=1, sort_keys=True)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._path, text.encode() + b"\n")


def changed(node: str, pinned: str, key: str) -> str:
    """Return what a changed key may mean, and the remedy."""
    return (
        f"its public key of WireGuard is {key}, and {pinned} is pinned: another card, or another"
        f" machine in its place; if you know why, `fab deploy start --new-keys {node}` makes a new"
        " pair there and pins it"
    )


def _read(path: Path | None) -> dict[str, str]:
    if path is None or not path.exists():
        return {}
    try:
        with path.open("rb") as file:
            keys = parsed_json(file.read(MOST_BYTES))
    except (OSError, ValueError) as problem:
        raise ClusterError(f"{path}: cannot be read: {reason_of(problem)}") from None
    if not isinstance(keys, dict) or not all(map(is_key, keys.values())):
        raise ClusterError(f"{path}: expected a public key of WireGuard for each node")
    return keys
