"""Files of this machine as an archive for a node."""

import io
import tarfile
from collections.abc import Iterable


def tar_of(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a tar of files by name; the same files give the same bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()
