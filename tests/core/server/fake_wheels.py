"""Stand-ins for a TensorFlow wheel that does not work here.

The crashing library is a real shared object, written byte by byte because a bare machine has no
compiler: its initializer is an instruction that no processor of its architecture has.
"""

import platform
import struct
from pathlib import Path

from core.server.tensorflow_server import FRAMEWORK, LIBRARY

UNDEFINED_INSTRUCTION = {"x86_64": bytes([0x0F, 0x0B]), "aarch64": bytes(4)}
"""`ud2` and `udf #0`, which the architectures' manuals promise to stay undefined."""

MACHINE = {"x86_64": 62, "aarch64": 183}  # EM_X86_64, EM_AARCH64
SHARED_OBJECT = 3
LOAD = 1
DYNAMIC = 2
STACK = 0x6474E551
INITIALIZER = 12
STRINGS = 5
SYMBOLS = 6
STRINGS_SIZE = 10
SYMBOL_SIZE = 11
READ_WRITE = 6
READ_WRITE_EXECUTE = 7
DYNAMIC_AT = 0x100
SYMBOLS_AT = 0x180
STRINGS_AT = 0x1A0
CODE_AT = 0x1B0
SIZE = 0x1C0


def crashing_library() -> bytes:
    """A shared object (ELF64, little endian) that dies of SIGILL while it is loaded."""
    machine = platform.machine()
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", SHARED_OBJECT, MACHINE[machine], 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0
    )
    segments = struct.pack("<IIQQQQQQ", LOAD, READ_WRITE_EXECUTE, 0, 0, 0, SIZE, SIZE, 0x10000)
    segments += struct.pack(
        "<IIQQQQQQ", DYNAMIC, READ_WRITE, DYNAMIC_AT, DYNAMIC_AT, DYNAMIC_AT, 96, 96, 8
    )
    segments += struct.pack("<IIQQQQQQ", STACK, READ_WRITE, 0, 0, 0, 0, 0, 16)
    table = {
        INITIALIZER: CODE_AT,
        STRINGS: STRINGS_AT,
        SYMBOLS: SYMBOLS_AT,
        STRINGS_SIZE: 1,
        SYMBOL_SIZE: 24,
        0: 0,
    }
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in table.items())
    image = bytearray(SIZE)
    for place, content in (
        (0, header + segments),
        (DYNAMIC_AT, dynamic),
        (CODE_AT, UNDEFINED_INSTRUCTION[machine]),
    ):
        image[place : place + len(content)] = content
    return bytes(image)


def fake_wheel(folder: Path, framework: bytes | None, library: bytes | None) -> Path:
    """A folder for PYTHONPATH with a `tensorflow` package that has these libraries.

    None leaves one out.
    """
    package = folder / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "raise AssertionError('a lean role imported tensorflow')\n"
    )
    for name, content in ((FRAMEWORK, framework), (LIBRARY, library)):
        if content is not None:
            (package / name).write_bytes(content)
    return folder
