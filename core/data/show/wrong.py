"""The line of a file that an error names, with its neighbours: what a bad file looks like."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

AROUND = 2
LONGEST_LINE = 160
AT_ONCE = 2**16
_PLACE = re.compile(r"^(?P<path>.+?):(?P<line>\d{1,9}): ")


def named_lines(error: str) -> Iterator[str]:
    """Yield the lines around `path:line: ...`, the named one marked.

    There are none where the error names no readable line.
    """
    match = _PLACE.match(error)
    if match is None:
        return
    path = Path(match["path"])
    line = int(match["line"])
    if not path.is_file():
        return
    first = max(1, line - AROUND)
    with path.open("rb") as stream:
        for number in range(1, line + AROUND + 1):
            content = _line(stream)
            if not content:
                return
            if number >= first:
                text = content[: LONGEST_LINE + 1].decode("utf-8", "replace").rstrip("\r\n")
                if len(text) <= LONGEST_LINE:
                    excerpt = text
                else:
                    excerpt = f"{text[:LONGEST_LINE]}..."
                yield f"{'>' if number == line else ' '} {number}: {excerpt}"


def _line(stream: IO[bytes]) -> bytes:
    """Return the beginning of the next line, and pass its rest over.

    A line may be as long as the file.
    """
    begin = rest = stream.readline(AT_ONCE)
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(AT_ONCE)
    return begin
