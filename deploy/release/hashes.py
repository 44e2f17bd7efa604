"""The hashes that name a release or an environment, and `SHA256SUMS` (sha256sum(1))."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

KEY_DIGITS = 16
"""Hexadecimal digits of a key, the name of a release or an environment: 64 bits of a hash of its
content."""
SUMS = "SHA256SUMS"


def key_of(content: object) -> str:
    """The key of a content; of plain values it is that of their JSON."""
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    return hashlib.sha256(content).hexdigest()[:KEY_DIGITS]


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sums_text(sums: Mapping[str, str]) -> str:
    """The text of SUMS for hashes by file name, sorted."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def parse_sums(text: str) -> dict[str, str]:
    """Hashes by file name."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name: sha256 for sha256, name in pairs}
