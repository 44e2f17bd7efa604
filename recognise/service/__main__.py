"""`python -m recognise.service`: one service in the foreground; `fab serve` starts it."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.control.door import raise_limit
from cluster.control.rules import is_ours
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.host_names import is_host_name
from cluster.logs.lines import LogSettings, Speaker, begin
from cluster.logs.terminal import say
from recognise.service import state
from recognise.service.addresses import reachable
from recognise.service.limits import Limits, ShadowLimits
from recognise.service.memory import give_back_large_blocks
from recognise.service.target import announced
from recognise.service.versions import Versions

if TYPE_CHECKING:  # plain HTTP needs neither cryptography nor MQTT
    from recognise.service.broker import Broker
    from recognise.service.tls import Tls

HOST = "127.0.0.1"
PORT = 8470
NAME = "har"
MOST_THREADS = 64
LONGEST_SHADOW_SECONDS = 3600
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

Number = TypeVar("Number", int, float)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code."""
    given = _parser().parse_args(arguments)
    begin(Speaker("service"), LogSettings())
    logging.getLogger("recognise").setLevel(logging.INFO)
    raise_limit()
    give_back_large_blocks()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it once more when it has ended
    try:
        limits = replace(
            Limits(),
            threads=_within("--threads", given.threads, 1, MOST_THREADS),
            batch_seconds=_within("--batch-milliseconds", given.batch_milliseconds, 0, 1000) / 1000,
            shadow=replace(
                ShadowLimits(),
                seconds=_within("--shadow-seconds", given.shadow_seconds, 0, LONGEST_SHADOW_SECONDS),
                least_agreement=_within("--least-agreement", given.least_agreement, 0, 1),
            ),
        )
        _within("--port", given.port, 0, 65_535)
        _within("--metrics-port", given.metrics_port or 0, 0, 65_535)
        if given.no_token and given.token_file:
            raise UsageError("--no-token and --token-file: expected one of them")
        if given.no_token and given.listen not in _LOOPBACK:
            raise UsageError(f"--no-token: expected it with {HOST} alone, got --listen {given.listen}")
        _refuse_half_a_pair(given)
        for name in given.host_name:
            if not is_host_name(name):
                raise UsageError(f"--host-name: expected the name of a host, got {name!r:.80}")
        if not is_ours(given.listen, _LOOPBACK):
            raise UsageError(f"--listen: expected an address of this machine, got {given.listen!r:.80}")
        folder = Path(given.state)
        versions = Versions(state.versions_of(Path(given.versions or folder / state.MODELS), given.name))
        state.made(folder)
        if given.model:
            versions.promote(Path(given.model))
        return _serve(given, folder, versions, limits)
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    except KeyboardInterrupt:  # SIGINT is how a service ends
        return ExitCode.DONE


def _serve(given: argparse.Namespace, folder: Path, versions: Versions, limits: Limits) -> int:
    try:
        from recognise.service.server import Place, serve
    except ModuleNotFoundError as problem:
        raise UsageError(f"expected the package {problem.name}: pip install {problem.name}") from None

    token = _token(given, folder)
    host = socket.gethostname()
    names = host, f"{host}.local", *given.host_name
    tls = _tls(given, folder, names)
    own = tls is not None and not given.certificate
    authority = folder / "authority.crt" if own else None
    place = Place(
        given.listen.replace("localhost", HOST),
        given.port,
        names,
        token,
        tls,
        authority,
        given.metrics_port,
        _broker(given),
        given.wait,
    )
    scheme = "http" if tls is None else "https"
    kept = given.token_file or os.path.relpath(folder / "token")
    where = "no token is asked" if token is None else f"token: {kept}"

    with ExitStack() as until_the_end:

        def ready(port: int, version: int) -> None:
            address = f"[{place.host}]" if ":" in place.host else place.host
            url = f"{scheme}://{address}:{port}"
            if token is not None and not given.token_file:  # Prometheus sends the folder's token to all
                until_the_end.enter_context(announced(folder, given.name, url))
            say(f"serving {given.name} version {version} at {url} ({where}; Ctrl-C ends it)")
            if given.link:
                _say_links(f"{scheme}://{reachable(place.host)}:{port}", token, folder if own else None)

        asyncio.run(serve(given.name, versions.folder, place, limits, ready))
    return ExitCode.DONE


def _token(given: argparse.Namespace, folder: Path) -> str | None:
    if given.no_token:
        return None
    return state.token_in(Path(given.token_file)) if given.token_file else state.token(folder)


def _broker(given: argparse.Namespace) -> "Broker | None":
    if not given.mqtt:
        if given.mqtt_credentials or given.mqtt_authority:
            raise UsageError("--mqtt-credentials and --mqtt-authority: expected them with --mqtt")
        return None
    try:
        from recognise.service.broker import broker_of
    except ModuleNotFoundError as problem:
        raise UsageError(f"--mqtt: expected the package {problem.name}: pip install aiomqtt") from None
    files = (Path(path) if path else None for path in (given.mqtt_credentials, given.mqtt_authority))
    return broker_of(given.mqtt, *files)


def _say_links(base: str, token: str | None, folder: Path | None) -> None:
    """What a person opens on a phone. The token is in the fragment, which no browser sends."""
    say(f"page for a phone: {base}/{f'#token={token}' if token else ''}")
    if folder is not None:
        from recognise.service.authority import fingerprint

        say(f"certificate for phones: {base}/authority.crt (SHA-256 {fingerprint(folder)})")


def _refuse_half_a_pair(given: argparse.Namespace) -> None:
    if bool(given.certificate) != bool(given.key):
        raise UsageError("--certificate and --key: expected both or neither; --tls alone makes them")


def _tls(given: argparse.Namespace, folder: Path, names: tuple[str, ...]) -> "Tls | None":
    if not (given.tls or given.certificate):
        return None
    try:
        from recognise.service import tls
    except ModuleNotFoundError as problem:
        raise UsageError(f"--tls: expected the package {problem.name}: pip install cryptography psutil") from None
    return tls.given(given.certificate, given.key) if given.certificate else tls.own(folder, names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m recognise.service", description="Serve a model over HTTP.")
    parser.add_argument("--state", default=str(state.FOLDER), metavar="FOLDER", help="of the token and the versions")
    parser.add_argument("--versions", metavar="FOLDER", help="of the versions of all models; in --state by default")
    parser.add_argument("--name", default=NAME, help=f"of the model in paths; {NAME}")
    parser.add_argument("--model", metavar="EXPORT", help="promote this export first")
    parser.add_argument("--listen", default=HOST, metavar="ADDRESS", help=f"where clients connect; {HOST}")
    parser.add_argument("--port", type=int, default=PORT, help=f"0 is any free one; {PORT}")
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT",
        help="/metrics over plain HTTP and without a token, for a Prometheus; a firewall decides who reaches it",
    )  # fmt: skip
    parser.add_argument("--wait", action="store_true", help="wait for the first promotion where there is none yet")
    parser.add_argument(
        "--host-name", action="append", default=[], metavar="NAME",
        help="a name by which clients call it, beside this machine's own; may be given several times",
    )  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", help="holds the token that clients send; else one is made")
    parser.add_argument("--no-token", action="store_true", help="answer everybody who reaches the port")
    parser.add_argument("--link", action="store_true", help="print the address of the page, with the token")
    parser.add_argument("--tls", action="store_true", help="HTTPS, with a certificate that the service makes itself")
    parser.add_argument("--certificate", metavar="FILE", help="HTTPS with a certificate of your own (PEM)")
    parser.add_argument("--key", metavar="FILE", help="of --certificate (PEM, without a password)")
    parser.add_argument("--mqtt", metavar="URL", help="take readings at a broker too: mqtt[s]://HOST[:PORT][/PREFIX]")
    parser.add_argument("--mqtt-credentials", metavar="FILE", help="one line USER:PASSWORD for the broker")
    parser.add_argument("--mqtt-authority", metavar="FILE", help="who signed the broker's certificate (PEM)")
    parser.add_argument("--threads", type=int, default=Limits.threads, help="batches at one time")
    parser.add_argument(
        "--batch-milliseconds", type=float, default=1000 * Limits.batch_seconds, metavar="MS",
        help="how long a request waits for others",
    )  # fmt: skip
    parser.add_argument(
        "--shadow-seconds", type=float, default=ShadowLimits.seconds, metavar="S",
        help="how long a promoted version is compared on live windows before it takes over; 0 is not at all",
    )  # fmt: skip
    parser.add_argument(
        "--least-agreement", type=float, default=ShadowLimits.least_agreement, metavar="SHARE",
        help="of the compared windows, which must get the served version's label",
    )  # fmt: skip
    return parser


def _within(flag: str, value: Number, low: int, high: int) -> Number:
    if not low <= value <= high:
        raise UsageError(f"{flag}: expected {low} to {high}, got {value}")
    return value


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
