"""The options of `python -m recognise.service`, and what they must be."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from core.control.requests import is_ours
from core.ground import gone
from core.ground.addresses import is_host_name
from core.ground.errors import UsageError
from recognise.flags import parser_of
from recognise.service.limits import Limits

HOST = "127.0.0.1"
PORT = 8470
NAME = "har"
MOST_THREADS = 64
LEAST_MEGABYTES = 64
MOST_MEGABYTES = 1 << 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

Number = TypeVar("Number", int, float)


def parser(program: str, purpose: str) -> argparse.ArgumentParser:
    """Return the parser of the options of a program, which flags.json lists by program."""
    return parser_of(
        Path(__file__).with_name("flags.json"),
        program,
        purpose,
        name=NAME,
        listen=HOST,
        port=PORT,
        memory_megabytes=Limits.memory_megabytes,
        threads=Limits.threads,
        batch_milliseconds=1000 * Limits.batch_seconds,
    )


def memory_of(flags: argparse.Namespace) -> int:
    """Return the megabytes of the service. Raises UsageError."""
    megabytes: int = flags.memory_megabytes
    return _within("--memory-megabytes", megabytes, LEAST_MEGABYTES, MOST_MEGABYTES)


def limits_of(flags: argparse.Namespace) -> Limits:
    """Return the limits that the options name. Raises UsageError."""
    threads = _within("--threads", flags.threads, 1, MOST_THREADS)
    milliseconds = _within("--batch-milliseconds", flags.batch_milliseconds, 0, 1000)
    return replace(
        Limits(),
        threads=threads,
        batch_seconds=milliseconds / 1000,
        memory_megabytes=memory_of(flags),
    )


def refuse_former(command_line: Sequence[str]) -> None:
    """Raise UsageError for a flag of earlier versions."""
    for word in command_line:
        flag = word.partition("=")[0]
        if flag in gone.FLAGS:
            raise UsageError(f"{flag} is gone: {gone.FLAGS[flag]}")


def refuse_unusable(flags: argparse.Namespace) -> None:
    """Raise UsageError for addresses, names and keys that no service can have."""
    _within("--port", flags.port, 0, 65_535)
    _within("--metrics-port", flags.metrics_port or 0, 0, 65_535)
    if flags.no_token and flags.token_file:
        raise UsageError("--no-token and --token-file: expected one of them")
    if flags.no_token and flags.listen not in _LOOPBACK:
        raise UsageError(f"--no-token: expected it with {HOST} alone, got --listen {flags.listen}")
    if bool(flags.certificate) != bool(flags.key):
        raise UsageError(
            "--certificate and --key: expected both or neither; --tls alone makes them"
        )
    if flags.authority and not flags.certificate:
        raise UsageError("--authority: expected it with --certificate; --tls makes its own")
    for name in flags.host_name:
        if not is_host_name(name):
            raise UsageError(f"--host-name: expected the name of a host, got {name!r:.80}")
    if not is_ours(flags.listen, _LOOPBACK):
        raise UsageError(f"--listen: expected an address of this machine, got {flags.listen!r:.80}")


def _within(flag: str, value: Number, low: int, high: int) -> Number:
    if not low <= value <= high:
        raise UsageError(f"{flag}: expected {low} to {high}, got {value}")
    return value
