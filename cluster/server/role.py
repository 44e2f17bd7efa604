"""The life of a role process: check, listen, guard, serve, report readiness, end on SIGTERM."""

import contextlib
import ctypes
import encodings.idna  # noqa: F401  (see _load_late_imports)
import logging
import os
import platform
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from cluster.control.actions import Actions
from cluster.control.door import RateLimitedLog, raise_limit
from cluster.control.rules import Rules
from cluster.errors import ClusterError, ExitCode
from cluster.logs.lines import Speaker, begin, last_line
from cluster.logs.terminal import say
from cluster.metrics import exporter, standard
from cluster.metrics.instruments import Identity
from cluster.metrics.process import Cost
from cluster.server import probe, sockets, systemd
from cluster.server.accounts import become, die_with_parent, forbid_new_privileges, why_root
from cluster.server.devices import environment
from cluster.server.memory import (
    MEBIBYTE,
    PARAMETER_SERVER_ARENAS,
    TooLittleMemoryError,
    address_space,
    check_memory,
    give_back,
    headroom,
    limit_arenas,
)
from cluster.server.options import RoleName, RoleOptions, explicit_flags, options, parse, resolve
from cluster.server.port_guard import PortGuard, guard_loopback, is_loopback
from cluster.server.systemd import keep_channel, notify
from cluster.server.tensorflow_server import LeanServer, ServerDefinition, StockServer

PROBE_SECONDS = 1.0
FIRST_ANSWER_SECONDS = 60.0
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOPBACK = "127.0.0.1"
RUN_LINES_A_MINUTE = 60

ENVIRONMENT = {
    # Without it a call to a task that restarts fails at once instead of waiting for its own deadline.
    "GRPC_FAIL_FAST": "use_caller",
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}

ACCEPTED = ("", "application/openmetrics-text; version=1.0.0")
"""What a browser and a Prometheus ask for."""

LAST_SECONDS = 2
ALMOST_NONE_BYTES = 32 * MEBIBYTE
"""With less memory than this an abort counts as want of memory: std::bad_alloc and a failed thread end in abort()."""

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC = ctypes.PyDLL(None)
"""Its calls keep Python's lock: another thread may wait with it for the loader, in which this one has just crashed."""
_installed: list[object] = []  # C points to these, so they must live as long as the process

logger = logging.getLogger("pscluster.role")


def main(role: RoleName, arguments: Sequence[str] | None = None) -> int:
    """Run one role until SIGTERM or SIGINT; returns only on an error, with its exit code, after one line on stderr."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # before the server is up there is nothing to stop in order
    parsed = parse(role, arguments)
    raise_limit()
    try:
        if parsed.die_with_parent is not None:
            die_with_parent(parsed.die_with_parent)
        if parsed.inventory is not None:
            # A process that has read an inventory keeps 20 MB or more of it; a fresh one with the same pid does not.
            flags = explicit_flags(resolve(role, parsed))
            os.execv(sys.executable, [sys.executable, "-m", f"{role}_node", *flags])
        run(options(role, parsed))
    except MemoryError:
        error: ClusterError = TooLittleMemoryError("Python could not allocate memory")
    except ClusterError as problem:
        error = problem
    where = "" if parsed.host is None else f"{parsed.host}:{parsed.port}"
    say(last_line(parsed.log_format or "text", Speaker(f"{role}:{parsed.task}", where), str(error)), error=True)
    return error.exit_code


def run(role: RoleOptions) -> NoReturn:
    """Serve until a signal, which ends the process here: the threads of a TensorFlow server cannot be stopped.

    Raises ClusterError when the role cannot come up.
    """
    began = time.monotonic()
    speaker = Speaker(role.name, role.address)
    if role.account is not None:
        forbid_new_privileges()  # before there are other threads: they inherit it
    _prepare(role, speaker)
    purpose = f"the TensorFlow server of {role.name}"
    every_interface = "::" if socket.has_dualstack_ipv6() else ""
    sockets.check_free(every_interface, role.port, purpose)
    check_memory(role.server)
    serving = False

    def ready() -> bool:
        return serving and probe.answers(LOOPBACK, role.port, PROBE_SECONDS)

    registry, identity = CollectorRegistry(auto_describe=False), Identity(role.role, role.task)
    cost = Cost(identity)
    standard.register(
        registry, identity, metrics_port=role.metrics_port, server=role.server, ready=ready, cost=cost,
        shared=role.shared, gpu=role.taken.number if role.taken is not None and role.taken.kind == "gpu" else None,
    )  # fmt: skip
    try:
        exporter.serve(
            registry, role.host, role.metrics_port, ready, cost=cost, rules=Rules(role.coordinator),
            actions=_actions(role, speaker, lambda: not serving),
        )  # fmt: skip
    except OSError as error:
        raise sockets.explain(error, role.host, role.metrics_port, f"the metrics of {role.name}") from error
    notify("STATUS=loading TensorFlow")
    others = () if role.account is None else (role.account,)
    guard = PortGuard(role.port, role.host, others) if role.guard == "loopback" else None
    try:
        server = _listen(role)
    except ClusterError:
        sockets.check_free(every_interface, role.port, purpose)  # another process may have taken it since
        raise
    if guard is not None:
        guard.put_up()
        _guard_metrics(role)
    _become_unprivileged(role, registry)
    server.start()
    asks = guard.answers if guard else partial(probe.answers, LOOPBACK, role.port)
    first_answer = asks(FIRST_ANSWER_SECONDS)
    if not first_answer:
        raise ClusterError(f"the server on {role.address} does not answer after {FIRST_ANSWER_SECONDS:.0f} s")
    if guard is not None:
        guard.report(logger)
    logger.info(
        "ready after %.2f s: %s server, %d inter-op threads, metrics on %s port %d",
        *(time.monotonic() - began, role.server, role.inter_op_threads, role.host, role.metrics_port),
    )
    signals = _catch_signals()
    serving = True
    notify(f"READY=1\nSTATUS=serving on port {role.port}")
    every_seconds = systemd.interval_seconds()
    if every_seconds is not None:
        until_the_end = threading.Event()
        systemd.send_heartbeats(
            every_seconds, lambda limit: probe.answers(LOOPBACK, role.port, limit), notify, until_the_end
        )
    received = signal.Signals(signals.recv(1)[0])
    _end(f"stopped by {received.name}", ExitCode.DONE)


def _end(why: str, code: ExitCode) -> NoReturn:
    logger.info("%s", why)
    notify(f"STOPPING=1\nSTATUS={why}")
    os._exit(code)


def _actions(role: RoleOptions, speaker: Speaker, fresh: Callable[[], bool]) -> Actions:
    """Restarts if there is a coordinator, and the run's name in every log line until it ends or another one begins."""
    lines = RateLimitedLog(logger, logging.INFO, most=RUN_LINES_A_MINUTE)
    giving = threading.Lock()

    def freed() -> None:
        with giving:
            give_back()

    def begins(run: str) -> None:
        if run == speaker.run:
            return  # the coordinator repeats it
        speaker.run = run
        lines.say(f"run {run} begins")

    def ends(run: str) -> None:
        if run == speaker.run:
            lines.say(f"run {run} is over")
            speaker.run = ""
            # The coordinator has left the cluster before this request, and does not wait for us.
            if not giving.locked():
                threading.Thread(target=freed, name="give-back", daemon=True).start()

    def restart(client: str) -> None:
        _end(f"restart asked for by {client}", ExitCode.RESTART_ASKED)

    return Actions(
        restart=None if role.coordinator is None else restart, fresh=fresh, begin_run=begins, end_run=ends
    )  # fmt: skip


def _prepare(role: RoleOptions, speaker: Speaker) -> None:
    if role.role == "ps":
        limit_arenas(PARAMETER_SERVER_ARENAS)
    os.environ.update({**ENVIRONMENT, **environment(role.taken)})
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    begin(speaker, role.logging)
    report_crashes(lambda words: last_line(role.logging.format, speaker, words))


def _guard_metrics(role: RoleOptions) -> None:
    if not is_loopback(role.host):
        outcome = guard_loopback(role.metrics_port, role.host)
        if not outcome.guarded:
            logger.warning("metrics port %d can be read from the network: %s", role.metrics_port, outcome.reason)


def _become_unprivileged(role: RoleOptions, registry: CollectorRegistry) -> None:
    """The last thing before the server executes anything: TensorFlow is loaded, and both ports are bound and guarded.

    Raises ClusterError.
    """
    if role.account is not None:
        _load_late_imports(registry)
        keep_channel()
        become(role.account)
    elif os.geteuid() == 0 and role.guard == "loopback":
        obstacle = why_root()
        logger.log(
            logging.INFO if obstacle is None else logging.WARNING,
            "runs as root: %s", obstacle or "started without --account UID and without an inventory",
        )  # fmt: skip


def _load_late_imports(registry: CollectorRegistry) -> None:
    """Have Python load the modules that a scrape, a request and an error need.

    It loads them when they are first used. The account that a role becomes may not read Python's files, below /root for
    instance. So this process does once, before it changes its account, what it does later.
    """
    for accepted in ACCEPTED:
        encode, _ = choose_encoder(accepted)
        encode(registry)
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()


def _listen(role: RoleOptions) -> LeanServer | StockServer:
    definition = ServerDefinition(role.role, role.task, role.address, role.intra_op_threads, role.inter_op_threads)
    return StockServer(definition) if role.server == "stock" else LeanServer(definition)


def _catch_signals() -> socket.socket:
    """A socket on which each signal that ends a role arrives as a byte, from now on."""
    # The kernel may interrupt any of TensorFlow's threads; the wakeup descriptor reaches this one.
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.detach())
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    return receiver


def report_crashes(line_of: Callable[[str], str]) -> None:
    """From now on end with ILLEGAL_INSTRUCTION or TOO_LITTLE_MEMORY on a crash of TensorFlow's machine code.

    Each comes after one line on stderr, which `line_of` makes of its words. Other aborts stay as they are.

    Python cannot foresee SIGILL: a wheel built for newer processors dies inside the loader, or at the first kernel that
    uses the instruction. Loading the library in a child first would show it, at twice the loading time and memory on
    every start of every Pi, and only for the loader. A handler in this process shows both and costs nothing.
    """
    illegal = (
        f"illegal instruction: this processor ({processor()}) lacks one that TensorFlow was built for; "
        "use a machine with a newer processor, or a TensorFlow wheel built for this one"
    )

    def on_illegal_instruction(number: int) -> None:
        _die(line_of(illegal), ExitCode.ILLEGAL_INSTRUCTION)

    def on_abort(number: int) -> None:
        # An abort inside malloc holds its lock. If this handler waits for it, SIGALRM ends the process.
        signal.alarm(LAST_SECONDS)
        room = min(headroom(), address_space(), key=lambda bound: bound.available_bytes)
        if room.available_bytes < ALMOST_NONE_BYTES:
            words = f"out of memory: {room.bound} leaves {room.available_bytes // MEBIBYTE} MiB"
            _die(line_of(words), ExitCode.TOO_LITTLE_MEMORY)

    _install(signal.SIGILL, on_illegal_instruction)
    _install(signal.SIGABRT, on_abort)


def processor() -> str:
    """The processor's model according to Linux, else the machine's architecture."""
    with contextlib.suppress(OSError):
        found = re.search(r"^(?:model name|Model)\s*:(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.M)
        if found:
            return found[1].strip()
    return platform.machine()


def _install(number: signal.Signals, handle: Callable[[int], None]) -> None:
    # signal.signal would only set a flag and return to the illegal instruction.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, _HANDLER]
    handler = _HANDLER(handle)
    _installed.append(handler)
    libc.signal(number, handler)


def _die(line: str, code: ExitCode) -> None:
    text = f"{line}\n".encode()
    _LIBC.write(sys.stderr.fileno() if sys.stderr else 2, text, ctypes.c_size_t(len(text)))
    _LIBC._exit(int(code))
