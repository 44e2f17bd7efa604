"""The options of `python -m recognise.service`, and what they must be."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from core import gone
from core.control.rules import is_ours
from core.errors import UsageError
from core.host_names import is_host_name
from recognise.service.limits import Limits

HOST = "127.0.0.1"
PORT = 8470
NAME = "har"
MOST_THREADS = 64
LEAST_MEGABYTES = 64
MOST_MEGABYTES = 1 << 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

Number = TypeVar("Number", int, float)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        prog="python -m recognise.service", description="Serve a model over HTTP."
    )
    add_state(made)
    made.add_argument("--name", default=NAME, help=f"of the model in paths; {NAME}")
    made.add_argument("--model", metavar="EXPORT", help="promote this export first")
    _add_addresses(made)
    _add_access(made)
    _add_computing(made)
    return made


def add_state(made: argparse.ArgumentParser) -> None:
    """Add the options that say where the state and the versions are."""
    made.add_argument("--state", metavar="FOLDER", help="of the token and the versions")
    made.add_argument(
        "--versions", metavar="FOLDER", help="of the versions of all models; in --state by default"
    )


def add_memory(made: argparse.ArgumentParser) -> None:
    """Add the option that says how much memory the service may take."""
    made.add_argument(
        "--memory-megabytes",
        type=int,
        default=Limits.memory_megabytes,
        metavar="N",
        help=f"of the service; a model gets two thirds; {Limits.memory_megabytes}",
    )


def memory_of(given: argparse.Namespace) -> int:
    """Return the megabytes of the service. Raises UsageError."""
    wanted: int = given.memory_megabytes
    return _within("--memory-megabytes", wanted, LEAST_MEGABYTES, MOST_MEGABYTES)


def _add_addresses(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--listen", default=HOST, metavar="ADDRESS", help=f"where clients connect; {HOST}"
    )
    made.add_argument("--port", type=int, default=PORT, help=f"0 is any free one; {PORT}")
    made.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help=(
            "/metrics over plain HTTP and without a token, for a Prometheus; a firewall decides who"
            f" reaches it; without it any free one of {HOST}"
        ),
    )
    made.add_argument(
        "--metrics-listen", metavar="ADDRESS", help="where that port listens; as --listen"
    )
    made.add_argument(
        "--wait", action="store_true", help="wait for the first promotion where there is none yet"
    )
    made.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help=(
            "a name by which clients call it, beside this machine's own; may be given several times"
        ),
    )


def _add_access(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--token-file", metavar="FILE", help="holds the token that clients send; else one is made"
    )
    made.add_argument(
        "--no-token", action="store_true", help="answer everybody who reaches the port"
    )
    made.add_argument(
        "--link", action="store_true", help="print the address of the page, with the token"
    )
    made.add_argument(
        "--tls", action="store_true", help="HTTPS, with a certificate that the service makes itself"
    )
    made.add_argument(
        "--certificate", metavar="FILE", help="HTTPS with a certificate of your own (PEM)"
    )
    made.add_argument("--key", metavar="FILE", help="of --certificate (PEM, without a password)")
    made.add_argument(
        "--authority", metavar="FILE", help="who signed --certificate (PEM), for phones to install"
    )


def _add_computing(made: argparse.ArgumentParser) -> None:
    add_memory(made)
    made.add_argument("--threads", type=int, default=Limits.threads, help="batches at one time")
    made.add_argument(
        "--batch-milliseconds",
        type=float,
        default=1000 * Limits.batch_seconds,
        metavar="MS",
        help="how long a request waits for others",
    )


def limits_of(given: argparse.Namespace) -> Limits:
    """Return the limits that the options name. Raises UsageError."""
    threads = _within("--threads", given.threads, 1, MOST_THREADS)
    milliseconds = _within("--batch-milliseconds", given.batch_milliseconds, 0, 1000)
    return replace(
        Limits(),
        threads=threads,
        batch_seconds=milliseconds / 1000,
        memory_megabytes=memory_of(given),
    )


def refuse_former(words: Sequence[str]) -> None:
    """Raise UsageError for a flag of earlier versions."""
    for word in words:
        flag = word.partition("=")[0]
        if flag in gone.FLAGS:
            raise UsageError(f"{flag} is gone: {gone.FLAGS[flag]}")


def refuse_unusable(given: argparse.Namespace) -> None:
    """Raise UsageError for addresses, names and keys that no service can have."""
    _within("--port", given.port, 0, 65_535)
    _within("--metrics-port", given.metrics_port or 0, 0, 65_535)
    if given.no_token and given.token_file:
        raise UsageError("--no-token and --token-file: expected one of them")
    if given.no_token and given.listen not in _LOOPBACK:
        raise UsageError(f"--no-token: expected it with {HOST} alone, got --listen {given.listen}")
    if bool(given.certificate) != bool(given.key):
        raise UsageError(
            "--certificate and --key: expected both or neither; --tls alone makes them"
        )
    if given.authority and not given.certificate:
        raise UsageError("--authority: expected it with --certificate; --tls makes its own")
    for name in given.host_name:
        if not is_host_name(name):
            raise UsageError(f"--host-name: expected the name of a host, got {name!r:.80}")
    if not is_ours(given.listen, _LOOPBACK):
        raise UsageError(f"--listen: expected an address of this machine, got {given.listen!r:.80}")


def _within(flag: str, value: Number, low: int, high: int) -> Number:
    if not low <= value <= high:
        raise UsageError(f"{flag}: expected {low} to {high}, got {value}")
    return value
