"""Archives as a hostile or broken machine makes them."""

import io
import tarfile


def entry(name: str, content: bytes = b"x", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    """One file of an archive; `more` are fields of its header."""
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for field, value in more.items():
        setattr(made, field, value)
    return made, content


def packed(
    *entries: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz", kind: int = tarfile.PAX_FORMAT
) -> bytes:
    """An archive of these; `mode` is tarfile's."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=kind) as archive:  # type: ignore[call-overload]
        for header, content in entries:
            archive.addfile(header, io.BytesIO(content))
    return made.getvalue()
