"""The life of a role process: preflight, listen, guard, serve, be ready, end on SIGTERM."""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from prometheus_client import CollectorRegistry

from cluster.errors import ClusterError, ExitCode
from cluster.metrics import exporter
from cluster.server import probe
from cluster.server.definition import ServerDefinition
from cluster.server.lean import LeanServer
from cluster.server.options import RoleOptions, options, parse

PROBE_SECONDS = 1.0
FIRST_ANSWER_SECONDS = 60.0

ENVIRONMENT = {
    # Without it a call to a task that is coming back fails at once instead of waiting for its own deadline.
    "GRPC_FAIL_FAST": "use_caller",
    "CUDA_VISIBLE_DEVICES": "-1",
}

logger = logging.getLogger("pscluster.role")


def main(role: str, arguments: Sequence[str] | None = None) -> int:
    """Run one role until SIGTERM; returns the exit status. Errors are one line on stderr."""
    parsed = parse(role, arguments)
    try:
        run(options(role, parsed))
    except ClusterError as error:
        print(f"{role}:{parsed.task}: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.DONE


def run(role: RoleOptions) -> None:
    """Serve until SIGTERM or SIGINT, which end the process here: TensorFlow's threads cannot be stopped."""
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s {role.name} {role.address}: %(message)s", force=True
    )
    started = time.monotonic()
    serving = False

    def ready() -> bool:
        return serving and probe.answers("127.0.0.1", role.port, PROBE_SECONDS)

    registry = CollectorRegistry(auto_describe=False)
    exporter.serve(registry, role.host, role.metrics_port, ready)
    server = LeanServer(
        ServerDefinition(role.role, role.task, role.address, role.intra_op_threads, role.inter_op_threads)
    )
    server.start()
    serving = True
    _exit_on_signals()
    if not probe.answers("127.0.0.1", role.port, FIRST_ANSWER_SECONDS):
        raise ClusterError(f"the server on {role.address} does not answer after {FIRST_ANSWER_SECONDS:.0f} s")
    logger.info("ready after %.2f s", time.monotonic() - started)
    while True:
        signal.pause()


def _exit_on_signals() -> None:
    def end(number: int, frame: FrameType | None) -> None:
        logger.info("stopped by %s", signal.Signals(number).name)
        os._exit(ExitCode.DONE)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
