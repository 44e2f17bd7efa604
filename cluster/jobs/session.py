"""Where a job computes: on a running cluster, or in this process.

A session has the connection, the port guard and the clean end.
"""

import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from http import HTTPStatus
from types import TracebackType

from cluster.jobs.cancel import Cancel, JobCancelled
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.progress import Display
from cluster.jobs.roles import RoleTraffic, RunAnnouncer, of_all, read_role, traffic_of
from cluster.jobs.run_folder import SPEAKER
from core.engine.changes import (
    Drain,
    ParameterServerLost,
    first_line,
    raise_if_cut_off,
    reaching_servers,
)
from core.engine.devices import HOST, refuse_workers_without, unproved
from core.engine.dispatcher import Dispatcher, NoWorkers
from core.engine.membership import TimeLimits
from core.engine.runtime import Peers, Runtime, device, one_thread_an_operation
from core.engine.threads import Saboteur
from core.engine.watchdog import SILENT_SECONDS
from core.engine.workers import InOrder, Item, ItemSource, Outcome
from core.ground.errors import ClusterError, UsageError
from core.ground.lazy import tf
from core.ground.ports import check_free
from core.inventory import Inventory, Task
from core.inventory.slots import PROCESSORS, DeviceSettings, cores_of_workers
from core.metrics.process import processor, usable_cores
from core.server.port_guard import PortGuard
from core.server.sockets import accepts, answering

log = logging.getLogger(__name__)

DRAIN_ANSWERS: Mapping[Drain, tuple[HTTPStatus, str]] = {
    Drain.DRAINED: (HTTPStatus.OK, "drained"),
    Drain.UNKNOWN: (HTTPStatus.NOT_FOUND, "the job has no such worker"),
    Drain.HOLDS_PARAMETERS: (
        HTTPStatus.CONFLICT,
        (
            "it holds a part of the parameters in mode allreduce: without it the job goes back to"
            " its last checkpoint"
        ),
    ),
    Drain.LAST: (HTTPStatus.CONFLICT, "no other worker was there to take its work"),
    Drain.BUSY: (HTTPStatus.SERVICE_UNAVAILABLE, "still at its work when the time was up"),
}
"""Answers to `POST /drain/worker:3`."""

SERVER_SECONDS = SILENT_SECONDS
JOIN_SECONDS = 30.0
LOOK_UP_SECONDS = 1.0
OWN_ANSWER_SECONDS = 5.0


class Session(AbstractContextManager["Session"]):
    """A coordinator connected to its parameter servers. Trace functions, then `dispatch`."""

    computing: tuple[str, ...] = ()
    """Devices of this process that compute: none, as the workers compute."""

    def __init__(
        self,
        inventory: Inventory,
        cancel: Cancel,
        metrics: CoordinatorMetrics,
        display: Display | None = None,
        computes_on: DeviceSettings = PROCESSORS,
        *,
        workers_meet: bool = False,
    ) -> None:
        """Bind the coordinator's ports and connect; the caller closes `metrics`.

        `computes_on`: what the workers compute on. `workers_meet`: see `Runtime`. Raises
        ClusterError naming the server that does not answer, and Cancelled.
        """
        self._computes_on = computes_on
        self._workers_meet = workers_meet
        self.inventory = inventory
        self._cancel = cancel
        self._metrics = metrics
        self._display = display or Display(quiet=True)
        self.coordinator = inventory.task("coordinator", 0)
        self.servers = inventory.of_role("ps")
        self._workers = inventory.of_role("worker")
        self.workers = len(self._workers)
        self.tasks = (*self.servers, *self._workers)
        self.places = tuple(device("ps", server.index) for server in self.servers)
        self._flag = f" --inventory {shlex.quote(os.path.relpath(inventory.path))}"
        """Flag for commands that a person may copy from a message."""
        self._dispatcher: Dispatcher | None = None
        self._stack = ExitStack()
        with ExitStack() as stack, self._display.busy("connecting to the parameter servers"):
            self._open(stack)
            self._stack = stack.pop_all()

    def _open(self, stack: ExitStack) -> None:
        coordinator = self.coordinator
        self._metrics.serve(
            coordinator, lambda name, seconds: drain(self._dispatcher, name, seconds)
        )
        announcer = RunAnnouncer(self.tasks, SPEAKER.run, self._metrics.restarting)
        self._announcer = stack.enter_context(announcer)
        check_free("", coordinator.port, "the coordinator")
        self._cancel.check()
        self._refuse_silent_servers()
        peers = Peers(
            coordinator.address,
            tuple(server.address for server in self.servers),
            tuple(worker.address for worker in self._workers),
        )
        if self.inventory.one_host:
            guard = PortGuard(coordinator.port, coordinator.host)
        else:
            guard = None
        try:
            self.runtime = Runtime(
                peers,
                self._computes_on.kind,
                soft_placement=self._computes_on.soft_placement,
                workers_meet=self._workers_meet,
            )
        except tf.errors.OpError as problem:
            raise_if_cut_off()
            raise ClusterError(
                f"coordinator at {coordinator.address}: TensorFlow could not start its server or"
                f" reach the parameter servers ({str(problem.message).splitlines()[0]}): is another"
                f" job running on this port? `fab deploy status{self._flag}` shows what runs"
            ) from None
        stack.callback(self.runtime.close)
        if guard is not None:
            guard.put_up()
            guard.answers(OWN_ANSWER_SECONDS)
            guard.report(log)

    def _refuse_silent_servers(self) -> None:
        addresses = {server.name: (server.host, server.port) for server in self.servers}
        alive = answering(addresses, SERVER_SECONDS)
        for server in self.servers:
            if server.name in alive:
                continue
            if accepts(server.host, server.port, LOOK_UP_SECONDS):
                raise ParameterServerLost(
                    f"parameter server {server.name} at {server.address} takes connections and"
                    f" answers none within {SERVER_SECONDS:.0f} s: it is stopped or hangs. `fab"
                    f" deploy restart{self._flag} --role {server.name}` starts it again"
                )
            raise ClusterError(
                f"{server.name} at {server.address} does not answer within {SERVER_SECONDS:.0f} s:"
                f" is it started, and on this port? `fab deploy status{self._flag}` shows what"
                f" runs, `fab deploy start{self._flag} --no-jobs` starts it"
            )

    def __exit__(
        self, kind: type[BaseException] | None, problem: object, trace: TracebackType | None
    ) -> None:
        self._dispatcher = None  # the metrics port may outlive it, and drains are asked for there
        try:
            if (
                kind is not None
                and issubclass(kind, Exception)
                and kind not in (JobCancelled, ParameterServerLost)
            ):
                raise_if_cut_off()  # whatever failed, it failed of that
        finally:
            self._stack.close()

    def require_library(self) -> None:
        """Have every role prove that it computes as this process, by the library of kernels.

        Parameter servers prove it now, workers when they join. Raises UsageError naming servers
        that cannot, ParameterServerLost if one left before its answer.
        """
        for server, place in zip(self.servers, self.places, strict=True):
            with reaching_servers():
                why = unproved(place)
            if why:
                raise UsageError(f"parameter server {server.name} on {server.node}: {why}")
        self.runtime.require(unproved)

    def dispatch(
        self,
        first_reply_seconds: float,
        chaos: Saboteur | None = None,
        *,
        workers_hold_parameters: bool = False,
    ) -> Dispatcher:
        """Let the workers join; waits for all of them, or for those who answer in time.

        What can be traced without knowing them is traced by now. `chaos` injects faults until the
        session ends. Raises NoWorkers if none does, UsageError if one lacks the device that it was
        to compute on, and Cancelled.
        """
        timing = TimeLimits(first_reply_seconds=first_reply_seconds)
        dispatcher = self._stack.enter_context(Dispatcher(self.runtime, timing, chaos=chaos))
        self._dispatcher = dispatcher
        if chaos is not None:
            self._stack.enter_context(chaos)
        self._metrics.membership = dispatcher.membership
        self._announcer.watch(dispatcher.membership)
        joined = self._wait_for_workers(dispatcher)
        live_workers = [worker for worker in self._workers if worker.index in dispatcher.live]
        refuse_workers_without(self._computes_on, live_workers, self.runtime.has)
        if joined < self.workers:
            log.warning("%d of %d workers answer: starting with those", joined, self.workers)
        if workers_hold_parameters:
            dispatcher.hold_parameters_on(dispatcher.live)
        return dispatcher

    def _wait_for_workers(self, dispatcher: Dispatcher) -> int:
        """The number that joined. Checks for Ctrl-C every second."""
        end = time.monotonic() + JOIN_SECONDS
        with closing(self._display.bar("waiting for workers", self.workers)) as bar:
            while True:
                self._cancel.check()
                try:
                    joined = dispatcher.wait_for_workers(self.workers, LOOK_UP_SECONDS)
                except NoWorkers:
                    joined = 0
                bar.set(joined)
                late = time.monotonic() > end
                refused = self.runtime.refused
                if joined and (late or joined + len(refused) >= self.workers):
                    return joined
                if len(refused) == self.workers:
                    raise UsageError(
                        "\n".join(f"worker:{task}: {why}" for task, why in sorted(refused.items()))
                    )
                if late:
                    addresses = ", ".join(
                        f"{worker.name} at {worker.address}" for worker in self._workers
                    )
                    raise NoWorkers(
                        f"no worker answered within {JOIN_SECONDS:.0f} s ({addresses}): are they"
                        f" started, and on these ports? `fab deploy status{self._flag}` shows what"
                        " runs"
                    )

    def processors(self) -> set[str | None]:
        """Return the kinds of processor that compute and hold parameters; None if unknown."""
        readings = of_all(self.tasks, read_role)
        processors = {reading.processor for reading in readings if reading is not None}
        if None in readings:
            processors.add(None)
        return processors

    def worker_cores(self) -> list[int]:
        """Cores that each worker has to itself, of those who say how many their nodes have."""
        readings = of_all(self._workers, read_role)
        cores = {
            worker.node: reading.cores
            for worker, reading in zip(self._workers, readings, strict=True)
            if reading is not None and reading.cores is not None
        }
        return cores_of_workers(self._workers, cores)

    def server_traffic(self) -> RoleTraffic | None:
        """Return what went over the parameter servers' own sockets so far.

        None if one does not say, which ends no job.
        """
        try:
            return sum(of_all(self.servers, traffic_of), RoleTraffic())
        except ClusterError as problem:
            log.warning("bytes on the wire are not counted for a while: %s", problem)
            return None


def drain(dispatcher: Dispatcher | None, name: str, seconds: float) -> tuple[HTTPStatus, str]:
    """Drain the worker of this name; status and words of the answer.

    `dispatcher` is None while there is none.
    """
    if not re.fullmatch(r"worker:[0-9]{1,6}", name):
        return DRAIN_ANSWERS[Drain.UNKNOWN]
    if dispatcher is None:
        return HTTPStatus.CONFLICT, "the job is still starting or over: no worker has work"
    return DRAIN_ANSWERS[dispatcher.drain(int(name.removeprefix("worker:")), seconds)]


class Solo(AbstractContextManager["Solo"]):
    """This process instead of a Session: it holds the parameters and runs items as worker 0.

    It runs them one after the other.
    """

    places = (HOST,)
    workers = 1
    tasks: tuple[Task, ...] = ()
    live = frozenset({0})

    def __init__(
        self,
        inventory: Inventory,
        cancel: Cancel,
        metrics: CoordinatorMetrics,
        computing: Sequence[str] = (HOST,),
    ) -> None:
        """The caller closes `metrics`.

        `computing`: the devices that compute, of which functions begin on the first.

        Raises ClusterError if the port of the coordinator's metrics is taken.
        """
        self.computing = tuple(computing)
        self._cancel = cancel
        metrics.serve(inventory.task("coordinator", 0))

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def require_library(self) -> None:
        """Do nothing: this process has loaded the library by now."""

    def dispatch(
        self,
        first_reply_seconds: float,
        chaos: Saboteur | None = None,
        *,
        workers_hold_parameters: bool = False,
    ) -> "Solo":
        """Return what runs the items, itself; without workers `chaos` has nothing to strike."""
        del first_reply_seconds, chaos, workers_hold_parameters
        self._cancel.check()
        return self

    def run(
        self,
        items: Iterable[Item] | ItemSource,
        stop: Callable[[], bool] = lambda: False,
        linger_seconds: float = 0.0,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each item; none is begun once `stop()` is true.

        Raises ClusterError.
        """
        del linger_seconds  # an item ends before the next look at `stop`
        source = InOrder(items) if isinstance(items, Iterable) else items
        while not stop() and (item := source.draw(0)) is not None:
            begin = time.monotonic()
            try:
                with nullcontext() if self.computing[0] == HOST else tf.device(self.computing[0]):
                    value = item.function(*item.arguments)
            except tf.errors.OpError as problem:
                raise ClusterError(
                    f"{item.function} (item {item.id}) failed: {first_line(problem)}"
                ) from None
            value = tf.nest.map_structure(lambda tensor: tensor.numpy(), value)
            yield Outcome(item, 0, value, time.monotonic() - begin, 1)

    def processors(self) -> set[str | None]:
        """Ours."""
        return {processor()}

    def worker_cores(self) -> list[int]:
        """Ours."""
        return [usable_cores()]

    def server_traffic(self) -> RoleTraffic | None:
        """Nothing goes over any wire."""
        return None


Runner = Dispatcher | Solo
"""Runner of items: the dispatcher over a cluster, or this process by itself."""


def connected(
    inventory: Inventory,
    cancel: Cancel,
    metrics: CoordinatorMetrics,
    display: Display,
    computing: Sequence[str],
) -> Session | Solo:
    """Return what runs the training: the roles of the inventory, or this process without any.

    `computing` are the devices of this process. Raises what the two classes raise.
    """
    # What TensorFlow computes in the coordinator is the same with and without workers. On an AMD
    # EPYC a matrix product on two threads has other last bits than on one.
    one_thread_an_operation()
    job = inventory.jobs.train
    if job.facts.needs_roles():
        in_workers = job.facts.parameters == "workers"
        return Session(inventory, cancel, metrics, display, job.device, workers_meet=in_workers)
    return Solo(inventory, cancel, metrics, computing)
