"""What crosses a cable: every frame, by protocol and port."""

import ctypes
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

EVERY_FRAME = 0x0003
HEADER_BYTES = 14
IPV4 = 0x0800

Seen = Counter[tuple[str, int]]
"""Bytes by protocol (`tcp`, `udp`, or its number) and port; 0 where it has none."""


@contextmanager
def watched(cable: str, space: str = "") -> Iterator[Seen]:
    """What passes until the end of the block; `space` is the namespace of the cable."""
    seen: Seen = Counter()
    over = threading.Event()
    with ThreadPoolExecutor(1) as apart:
        tap = apart.submit(_tap, cable, space).result()
    with tap:
        tap.settimeout(0.2)
        reading = threading.Thread(target=_read, args=(tap, seen, over), daemon=True)
        reading.start()
        try:
            yield seen
        finally:
            over.set()
            reading.join()


def _tap(cable: str, space: str) -> socket.socket:
    """In a thread of its own, which alone enters the namespace."""
    if space:
        with open(space, "rb") as entered:
            failed = ctypes.CDLL(None, use_errno=True).setns(entered.fileno(), 0)
        assert not failed, ctypes.get_errno()
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_FRAME))
    tap.bind((cable, 0))
    return tap


def _read(tap: socket.socket, seen: Seen, over: threading.Event) -> None:
    while not over.is_set():
        try:
            frame = tap.recv(1 << 16)
        except TimeoutError:
            continue
        kind = kind_of(frame)
        if kind is not None:
            seen[kind] += len(frame)


def kind_of(frame: bytes) -> tuple[str, int] | None:
    """Protocol and the port of the server's side; None for what is no IPv4."""
    if len(frame) < HEADER_BYTES + 20 or struct.unpack_from("!H", frame, 12)[0] != IPV4:
        return None
    length = (frame[HEADER_BYTES] & 15) * 4
    protocol = frame[HEADER_BYTES + 9]
    name = {6: "tcp", 17: "udp"}.get(protocol)
    if name is None or len(frame) < HEADER_BYTES + length + 4:
        return str(protocol), 0
    return name, min(struct.unpack_from("!HH", frame, HEADER_BYTES + length))
