"""`python -m recognise.service`: one service in the foreground; `fab serve` starts it."""

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from core.control.door import raise_limit
from core.ground.addresses import with_port
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say
from core.logs.lines import LogSettings, Speaker, begin
from recognise.service import rights, state
from recognise.service.addresses import reachable
from recognise.service.limits import Limits, give_back_large_blocks
from recognise.service.options import HOST, limits_of, parser, refuse_former, refuse_unusable
from recognise.service.state import TARGETS, announced
from recognise.service.versions import Versions
from recognise.service.worker.process import Nursery

if TYPE_CHECKING:  # plain HTTP needs no cryptography
    from recognise.service.tls import Tls


log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code."""
    command_line = sys.argv[1:] if arguments is None else arguments
    begin(Speaker("service"), LogSettings())
    logging.getLogger("recognise").setLevel(logging.INFO)
    raise_limit()
    give_back_large_blocks()
    # uvicorn raises it once more when it has ended
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        refuse_former(command_line)
        flags = parser("recognise.service", "Serve a model over HTTP.").parse_args(command_line)
        limits = limits_of(flags)
        refuse_unusable(flags)
        folder = state.folder_of(flags.state)
        versions = Versions(
            state.versions_of(Path(flags.versions or folder / state.MODELS), flags.name), limits
        )
        state.made(folder)
        if flags.model:
            versions.promote(Path(flags.model))
        return _serve(flags, folder, versions, limits)
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code
    except KeyboardInterrupt:  # SIGINT is how a service ends
        return ExitCode.DONE


def _serve(flags: argparse.Namespace, folder: Path, versions: Versions, limits: Limits) -> int:
    try:
        from recognise.service.server import ServiceOptions, bound, serve
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"expected the package {problem.name}: pip install {problem.name}"
        ) from None

    token = _token(flags, folder)
    host = socket.gethostname()
    names = host, f"{host}.local", *flags.host_name
    tls = _tls(flags, folder, names)
    authority = _authority(flags, folder)
    metrics_host = flags.metrics_listen or HOST
    if flags.metrics_port is not None and not flags.metrics_listen:
        metrics_host = flags.listen.replace("localhost", HOST)
    options = ServiceOptions(
        host=flags.listen.replace("localhost", HOST),
        port=flags.port,
        names=names,
        given_names=flags.host_name,
        token=token,
        tls=tls,
        authority=authority,
        metrics_port=flags.metrics_port or 0,
        metrics_host=metrics_host,
        waits=flags.wait,
    )
    if tls is None:
        scheme = "http"
    else:
        scheme = "https"
    if token is None:
        access = "no token is asked"
    else:
        access = f"token: {flags.token_file or folder / 'token'}"

    with ExitStack() as until_the_end:
        listener = None
        if not flags.wait:
            listener = until_the_end.enter_context(bound(options, limits))
        nursery = until_the_end.enter_context(closing(Nursery()))
        renewed = rights.around((flags.certificate, flags.key, flags.authority))
        rights.enter_cage(options, renewed, (folder, versions.folder.parent))

        def ready(port: int, version: int, metrics_port: int) -> None:
            url = f"{scheme}://{with_port(options.host, port)}"
            # The port without a token: once this service is killed, another program may take it.
            if not flags.token_file:
                target = announced(folder / TARGETS, flags.name, metrics_host, metrics_port)
                until_the_end.enter_context(target)
            say(f"serving {flags.name} version {version} at {url} ({access}; Ctrl-C ends it)")
            if flags.link:
                base = f"{scheme}://{with_port(reachable(options.host), port)}"
                _say_links(base, token, authority)

        asyncio.run(serve(flags.name, versions.folder, options, limits, ready, nursery, listener))
    return ExitCode.DONE


def _token(flags: argparse.Namespace, folder: Path) -> str | None:
    if flags.no_token:
        return None
    if flags.token_file:
        return state.token_in(Path(flags.token_file))
    return state.token(folder)


def _authority(flags: argparse.Namespace, folder: Path) -> Path | None:
    """Return the certificate that phones may install, or None."""
    if flags.authority:
        return Path(flags.authority)
    if flags.tls and not flags.certificate:
        return folder / "authority.crt"
    return None


def _say_links(base: str, token: str | None, authority: Path | None) -> None:
    """Print what a person opens on a phone. No browser sends a fragment, which has the token."""
    say(f"page for a phone: {base}/{f'#token={token}' if token else ''}")
    if authority is not None:
        from recognise.service.certificates import fingerprint

        say(f"certificate for phones: {base}/authority.crt (SHA-256 {fingerprint(authority)})")


def _tls(flags: argparse.Namespace, folder: Path, names: tuple[str, ...]) -> "Tls | None":
    if not (flags.tls or flags.certificate):
        return None
    try:
        from recognise.service import tls
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"--tls: expected the package {problem.name}: pip install cryptography psutil"
        ) from None
    if flags.certificate:
        return tls.given(flags.certificate, flags.key)
    return tls.own(folder, names)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
