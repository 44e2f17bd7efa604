"""Writes the smallest file of Excel (.xls) that has some sheets: BIFF8 in a compound document."""

import struct
from collections.abc import Mapping, Sequence

SECTOR = 512
FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
LEAST = 4096
"""A shorter stream would lie among the small ones."""


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def begin(kind: int) -> bytes:
    return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 1996, 0, 0))


def sheet(rows: Sequence[Sequence[str | float]]) -> bytes:
    found = [begin(0x10)]
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            place = struct.pack("<HHH", at, column, 0)
            if isinstance(value, str):
                text = value.encode("latin-1")
                found.append(record(0x204, place + struct.pack("<HB", len(text), 0) + text))
            else:
                found.append(record(0x203, place + struct.pack("<d", value)))
    return b"".join(found) + record(0x0A, b"")


def book(sheets: Mapping[str, Sequence[Sequence[str | float]]]) -> bytes:
    contents = {name: sheet(rows) for name, rows in sheets.items()}
    head = begin(5)
    place = len(head) + sum(12 + len(name) for name in contents) + 4
    for name, content in contents.items():
        what = struct.pack("<IHBB", place, 0, len(name), 0) + name.encode("ascii")
        head += record(0x85, what)
        place += len(content)
    return document(head + record(0x0A, b"") + b"".join(contents.values()))


def entry(name: str, kind: int, child: int, first: int, size: int) -> bytes:
    text = name.encode("utf-16-le") + b"\0\0"
    links = struct.pack("<HBBIII", len(text), kind, 1, FREE, FREE, child)
    return text.ljust(64, b"\0") + links + bytes(36) + struct.pack("<IQ", first, size)


def document(stream: bytes) -> bytes:
    """The compound document: its table of sectors, its folder, the stream."""
    stream = stream.ljust(LEAST, b"\0")
    count = -(-len(stream) // SECTOR)
    tables = -(-(count + 2) // (SECTOR // 4 - 1))
    chain = [FAT] * tables + [END] + [tables + 2 + at for at in range(count - 1)] + [END]
    table = struct.pack(f"<{len(chain)}I", *chain).ljust(tables * SECTOR, b"\xff")
    folder = entry("Root Entry", 5, 1, END, 0) + entry("Workbook", 2, FREE, tables + 1, len(stream))
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack(
        "<HHHHH6xIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, 0, tables, tables, 0, LEAST, END, 0, END, 0
    )
    head += struct.pack("<109I", *range(tables), *([FREE] * (109 - tables)))
    return head + table + folder.ljust(SECTOR, b"\0") + stream.ljust(count * SECTOR, b"\0")
