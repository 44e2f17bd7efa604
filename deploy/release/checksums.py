"""`SHA256SUMS`: the files of a folder with their hashes, in the format of sha256sum(1)."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

NAME = "SHA256SUMS"


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def render(sums: Mapping[str, str]) -> str:
    """The text for hashes by file name, sorted."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def parse(text: str) -> dict[str, str]:
    """Hashes by file name."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name: sha256 for sha256, name in pairs}
