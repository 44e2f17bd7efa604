"""The life of a role process: check, listen, guard, serve, report readiness, end on SIGTERM."""

import encodings.idna  # noqa: F401  (see _load_late_imports)
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from core.control.actions import Actions
from core.control.door import raise_limit
from core.control.own_state import own_key
from core.control.requests import Rules
from core.ground.accounts import become, die_with_parent, why_root
from core.ground.errors import ClusterError, ExitCode
from core.ground.ports import check_free, every_interface, port_refusal
from core.ground.shell import without_foreign, without_proxies
from core.logs import say
from core.logs.lines import Speaker, begin, last_line
from core.metrics import exporter, standard
from core.metrics.catalogue import Identity
from core.metrics.process import Cost
from core.server.gate import PeerAccounts
from core.server.options import RoleName, RoleOptions, explicit_flags, options, parse, resolve
from core.server.port_guard import PortGuard, guard_loopback, is_loopback
from core.server.process import (
    PARAMETER_SERVER_ARENAS,
    TooLittleMemoryError,
    check_memory,
    heartbeat_seconds,
    keep_channel,
    limit_arenas,
    notify,
    report_crashes,
    role_environment,
    send_heartbeats,
)
from core.server.rights import enter_cage
from core.server.runs import Runs
from core.server.session_threads import OBJECT, one_session_thread
from core.server.sockets import answers
from core.server.tensorflow_server import LeanServer, ServerDefinition, StockServer
from kernels.place import THREADS

PROBE_SECONDS = 1.0
FIRST_ANSWER_SECONDS = 60.0
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOPBACK = "127.0.0.1"

ENVIRONMENT = {
    # Without it a call to a task that restarts fails at once instead of waiting for its own
    # deadline.
    "GRPC_FAIL_FAST": "use_caller",
    # A thread each; TensorFlow starts 64.
    "TF_GRPC_WORKER_CACHE_QUEUES": "1",
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}

ACCEPTED = ("", "application/openmetrics-text; version=1.0.0")
"""Formats that a browser and a Prometheus ask for."""

logger = logging.getLogger("pscluster.role")


def main(role: RoleName, arguments: Sequence[str] | None = None) -> int:
    """Run one role until SIGTERM or SIGINT.

    It returns only on an error, with its exit code, after one line on stderr.
    """
    for number in ENDING_SIGNALS:
        signal.signal(
            number, signal.SIG_DFL
        )  # before the server is up there is nothing to stop in order
    parsed = parse(role, arguments)
    raise_limit()
    try:
        if parsed.die_with_parent is not None:
            die_with_parent(parsed.die_with_parent)
        if parsed.inventory is not None:
            # A process that has read an inventory keeps 20 MB or more of it; a fresh one with the
            # same pid does not.
            flags = explicit_flags(resolve(role, parsed))
            os.execv(sys.executable, [sys.executable, "-m", f"{role}_node", *flags])
        run(options(role, parsed))
    except MemoryError:
        error: ClusterError = TooLittleMemoryError("Python could not allocate memory")
    except ClusterError as problem:
        error = problem
    if parsed.host is None:
        where = ""
    else:
        where = f"{parsed.host}:{parsed.port}"
    say(
        last_line(parsed.log_format or "text", Speaker(f"{role}:{parsed.task}", where), str(error)),
        error=True,
    )
    return error.exit_code


def run(role: RoleOptions) -> NoReturn:
    """Serve until a signal, which ends the process here: TensorFlow's threads cannot be stopped.

    Raises ClusterError when the role cannot come up.
    """
    began = time.monotonic()
    speaker = Speaker(role.name, role.address)
    _prepare(role, speaker)
    _check_port(role)
    # In the cage nothing shows which process has a port.
    check_free(role.host, role.metrics_port, f"the metrics of {role.name}")
    check_memory(role.server)
    keep_channel()
    accounts = _accounts(role)
    key = own_key(role.name)  # the cage closes its file
    _say_that_it_is_root(role)
    caged = enter_cage(role)  # before there are other threads: they inherit it
    serving = threading.Event()
    registry = _serve_metrics(role, speaker, serving, key)
    notify("STATUS=loading TensorFlow")
    guard = None
    if role.guard == "loopback":
        further_accounts = () if role.account is None else (role.account,)
        guard = PortGuard(role.port, role.host, further_accounts, accounts)
    limited = one_session_thread()
    server = _listen(role)
    if server.refused is not None:
        logger.warning("%s", server.refused)
    if not limited():
        logger.info("eight threads for sessions, not one, take 33 MB more: %s does not fit", OBJECT)
    if guard is not None:
        guard.put_up()
        _guard_metrics(role)
    _become_unprivileged(role, registry)
    server.start()
    _await_first_answer(role, guard)
    logger.log(caged.level, "%s", caged.line)
    logger.info(
        "ready after %.2f s: %s server, %d inter-op threads, metrics on %s port %d",
        time.monotonic() - began,
        role.server,
        role.inter_op_threads,
        role.host,
        role.metrics_port,
    )
    signals = _catch_signals()
    serving.set()
    notify(f"READY=1\nSTATUS=serving on port {role.port}")
    _send_heartbeats(role)
    received = signal.Signals(signals.recv(1)[0])
    _end(f"stopped by {received.name}", ExitCode.DONE)


def _check_port(role: RoleOptions) -> None:
    """Raise ClusterError if another process has the role's port on any interface."""
    check_free(every_interface(), role.port, f"the TensorFlow server of {role.name}")


def _accounts(role: RoleOptions) -> PeerAccounts | OSError | None:
    """Return what the guard asks for accounts, or why it cannot: it tries one on a port."""
    if role.guard != "loopback":
        return None
    try:
        return PeerAccounts()
    except OSError as problem:
        return problem


def _serve_metrics(
    role: RoleOptions, speaker: Speaker, serving: threading.Event, key: str | None
) -> CollectorRegistry:
    """Serve /ready, /metrics and the actions of a role from now on.

    Raises ClusterError when the metrics port cannot be bound.
    """

    def ready() -> bool:
        return serving.is_set() and answers(LOOPBACK, role.port, PROBE_SECONDS)

    registry = CollectorRegistry(auto_describe=False)
    identity = Identity(role.role, role.task)
    cost = Cost()
    on_gpu = role.claimed_device is not None and role.claimed_device.kind == "gpu"
    standard.register(
        registry,
        identity,
        metrics_port=role.metrics_port,
        server=role.server,
        ready=ready,
        cost=cost,
        shared=role.shared,
        gpu=role.claimed_device.number if role.claimed_device is not None and on_gpu else None,
    )
    try:
        exporter.serve(
            registry,
            role.host,
            role.metrics_port,
            ready,
            cost=cost,
            rules=Rules(role.coordinator, key=lambda: key),
            actions=_actions(role, speaker, lambda: not serving.is_set()),
        )
    except OSError as error:
        purpose = f"the metrics of {role.name}"
        raise port_refusal(error, role.host, role.metrics_port, purpose) from error
    return registry


def _await_first_answer(role: RoleOptions, guard: PortGuard | None) -> None:
    """Wait until the server answers through its guard. Raises ClusterError if it does not."""
    if guard is None:
        answered = answers(LOOPBACK, role.port, FIRST_ANSWER_SECONDS)
    else:
        answered = guard.answers(FIRST_ANSWER_SECONDS)
    if not answered:
        raise ClusterError(
            f"the server on {role.address} does not answer after {FIRST_ANSWER_SECONDS:.0f} s"
        )
    if guard is not None:
        guard.report(logger)


def _send_heartbeats(role: RoleOptions) -> None:
    """Report to systemd that the server answers, at the interval that it asks for."""
    every_seconds = heartbeat_seconds()
    if every_seconds is not None:
        send_heartbeats(
            every_seconds,
            lambda limit: answers(LOOPBACK, role.port, limit),
            notify,
            threading.Event(),
        )


def _end(why: str, code: ExitCode) -> NoReturn:
    logger.info("%s", why)
    notify(f"STOPPING=1\nSTATUS={why}")
    os._exit(code)


def _actions(role: RoleOptions, speaker: Speaker, fresh: Callable[[], bool]) -> Actions:
    """Return what requests do: restart, if there is a coordinator, and name the run."""

    def restart(client: str) -> None:
        leave(f"restart asked for by {client}")

    leave = partial(_end, code=ExitCode.RESTART_ASKED)
    has_supervisor = role.coordinator is not None or "NOTIFY_SOCKET" in os.environ
    runs = Runs(speaker, leave if has_supervisor else None)
    return Actions(
        restart=None if role.coordinator is None else restart,
        fresh=fresh,
        begin_run=runs.begin,
        end_run=runs.end,
    )


def _prepare(role: RoleOptions, speaker: Speaker) -> None:
    if role.role == "ps":
        limit_arenas(PARAMETER_SERVER_ARENAS)
    without_foreign(os.environ)
    without_proxies(os.environ)
    os.environ.update({**ENVIRONMENT, **role_environment(role.claimed_device)})
    # Its server's pool, and the pool of each job, whose size the coordinator leaves to it.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(role.inter_op_threads)
    os.environ[THREADS] = str(role.cores)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    begin(speaker, role.logging)
    report_crashes(lambda reason: last_line(role.logging.format, speaker, reason))


def _guard_metrics(role: RoleOptions) -> None:
    if not is_loopback(role.host):
        outcome = guard_loopback(role.metrics_port, role.host)
        if not outcome.guarded:
            logger.warning(
                "metrics port %d can be read from the network: %s",
                role.metrics_port,
                outcome.reason,
            )


def _become_unprivileged(role: RoleOptions, registry: CollectorRegistry) -> None:
    """Take the role's account, last of all before the server executes anything.

    TensorFlow is loaded by now, and both ports are bound and guarded.

    Raises ClusterError.
    """
    if role.account is not None:
        _load_late_imports(registry)
        become(role.account)


def _say_that_it_is_root(role: RoleOptions) -> None:
    if role.account is None and os.geteuid() == 0 and role.guard == "loopback":
        obstacle = why_root()
        logger.log(
            logging.INFO if obstacle is None else logging.WARNING,
            "runs as root: %s",
            obstacle or "started without --account UID and without an inventory",
        )


def _load_late_imports(registry: CollectorRegistry) -> None:
    """Have Python load the modules that a scrape, a request and an error need.

    It loads them when they are first used. The account that a role becomes may not read Python's
    files, below /root for instance. So this process does once, before it changes its account, what
    it does later.
    """
    for accepted in ACCEPTED:
        encode, _ = choose_encoder(accepted)
        encode(registry)
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()


def _listen(role: RoleOptions) -> LeanServer | StockServer:
    """Load TensorFlow and bind the role's port. Raises ClusterError."""
    try:
        return _server(role)
    except ClusterError:
        _check_port(role)  # another process may have taken it since
        raise


def _server(role: RoleOptions) -> LeanServer | StockServer:
    definition = ServerDefinition(
        role.role, role.task, role.address, role.intra_op_threads, role.inter_op_threads
    )
    if role.server == "stock":
        return StockServer(definition)
    return LeanServer(definition)


def _catch_signals() -> socket.socket:
    """A socket on which each signal that ends a role arrives as a byte, from now on."""
    # The kernel may interrupt any of TensorFlow's threads; the wakeup descriptor reaches this one.
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.detach())
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    return receiver
