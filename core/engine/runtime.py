"""TensorFlow's distributed runtime for the dispatcher.

No other module uses TensorFlow's private names.

One eager context spans the live tasks only; tasks join and leave it while the variables on the
parameter servers stay. The public `tf.config.experimental_connect_to_cluster` starts over instead.
`tests/core/engine/test_private_names.py` pins what is used here against the installed TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from core.engine.codecs import AnswerAsShape, PackedArguments
from core.engine.guardian import Guardian
from core.engine.workers import OVERTAKEN
from core.ground.lazy import tf
from core.server.sockets import answering

KEEP_ALIVE_SECONDS = 600
"""Time for which a server keeps our context after our last heartbeat: TensorFlow's own default.

With 60 s a worker dropped our context while sixteen workers loaded a job's functions on two busy
cores: the first answer took 107 s, and our heartbeats came too late. A restart of the roles removes
what a killed coordinator leaves."""

GOODBYE_SECONDS = 2.0
"""Wait for a parameter server's answer before we leave the cluster without a message."""

_HANDLES: list[Any] = []
"""Handles on the default executor, one a worker's thread, until the process ends.

A handle's finalizer waits for that executor and prints a traceback of any failure there, such as a
read from a dead parameter server, long after we have reported it (measured: one a worker).
"""


def transient(problem: Exception) -> bool:
    """Return whether another attempt can succeed.

    It can where the network failed or a process died, so that the item is not the cause.

    A call to a worker that leaves the cluster definition at that moment ends as a wrong argument
    (measured), and so does an assertion that fails.
    """
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return any(phrase in str(problem.message) for phrase in ("unknown device", OVERTAKEN))
    network = tf.errors.UnavailableError | tf.errors.AbortedError
    return isinstance(problem, network | tf.errors.CancelledError | tf.errors.DeadlineExceededError)


def lacks_file(problem: "tf.errors.OpError") -> bool:
    """Return whether a worker that lives cannot read a file there, such as the job's windows."""
    return any(
        phrase in str(problem.message) for phrase in ("; No such file", "; Permission denied")
    )


def has_cpu_kernel(op: str) -> bool:
    """Return whether TensorFlow computes this op on a CPU, or needs no kernel, as for a call."""
    from tensorflow.python.framework import kernels

    registered = kernels.get_registered_kernels_for_op(op).kernel
    return not registered or any(kernel.device_type in ("CPU", "DEFAULT") for kernel in registered)


def _context() -> Any:
    from tensorflow.python.eager import context

    return context.context()


@contextmanager
def constants_up_to(elements: int) -> Iterator[None]:
    """Write a function's eager tensors of at most so many elements into its graph.

    TensorFlow does so up to 128 elements. Larger ones it keeps beside the graph, in the process
    that traced it.
    """
    from tensorflow.core.function.capture import capture_container

    before = capture_container._EAGER_CONST_THRESHOLD
    capture_container._EAGER_CONST_THRESHOLD = elements
    try:
        yield
    finally:
        capture_container._EAGER_CONST_THRESHOLD = before


def one_thread_an_operation() -> None:
    """Compute each operation on one thread, so that the number of cores changes no bit.

    Functions copy no mapped file either, as on the workers.

    Call it before anything else uses TensorFlow: the first variable, such as a Keras layer's,
    starts the threads. Raises RuntimeError if they run and are more than one an operation.
    """
    from tensorflow.core.protobuf import config_pb2

    tf.config.threading.set_intra_op_parallelism_threads(1)
    session = config_pb2.ConfigProto()
    _fold_no_constants(session)
    _context()._config = session


def _fold_no_constants(session: Any) -> None:
    """Leave the folding of constants to Grappler, which comes first.

    The other one first computes whatever has no inputs. That copied each file of windows, which
    processes map, into the memory of each (measured: 26 MB of 26 MB).
    """
    session.graph_options.optimizer_options.opt_level = -1  # OptimizerOptions.L0


@dataclass(frozen=True)
class Peers:
    """Addresses ("host:port") of every task in the inventory."""

    coordinator: str
    parameter_servers: tuple[str, ...]
    workers: tuple[str, ...]


def split(address: str) -> tuple[str, int]:
    """Host and port of "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def device(role: str, task: int, kind: str = "cpu", number: int = 0) -> str:
    """TensorFlow's name of a device of a task; its processor unless `kind` says `gpu` or `tpu`."""
    return beside(f"/job:{role}/replica:0/task:{task}/", kind, number)


def beside(place: str, kind: str, number: int = 0) -> str:
    """TensorFlow's name of another device of the same process."""
    return f"{place.rpartition('/')[0]}/device:{kind.upper()}:{number}"


def host_of(place: str) -> str:
    """TensorFlow's name of the processor beside a device."""
    return beside(place, "cpu")


class Runtime:
    """The coordinator's connection to the cluster."""

    def __init__(
        self,
        peers: Peers,
        computes_on: str = "cpu",
        *,
        soft_placement: bool = True,
        workers_meet: bool = False,
    ) -> None:
        """Connect to the parameter servers, and to no worker yet.

        Raises tf.errors.OpError if one cannot be reached.

        `computes_on`: the kind of device that runs the workers' functions. Without `soft_placement`
        an operation that such a device has no kernel for, where a function puts it there by name,
        fails. `workers_meet`: functions span several workers, so each sees all others.
        """
        self.peers = peers
        self._computes_on = computes_on
        self._soft_placement = soft_placement
        self._check: Callable[[str], str | None] = lambda place: None
        self.refused: dict[int, str] = {}
        """Reason by task why a worker that answers is not in the cluster."""
        servers = enumerate(peers.parameter_servers)
        workers = enumerate(peers.workers)
        addresses = {f"ps:{task}": split(address) for task, address in servers}
        self.guardian = Guardian(
            addresses | {f"worker:{task}": split(address) for task, address in workers}
        )
        for name in addresses:
            self.guardian.guard(name)
        definition = self._definition(frozenset())
        if not workers_meet:
            # A worker that sees another one instantiates all functions again when that one
            # comes or leaves (measured: 13 s for 16 workers and 8 servers on two cores).
            filters = definition.cluster_device_filters.jobs.add(name="worker").tasks
            for task in range(len(peers.workers)):
                filters[task].device_filters.extend(["/job:ps", "/job:chief"])
        with self.guardian.operation():
            _context().set_server_def(definition, keep_alive_secs=KEEP_ALIVE_SECONDS)
            _context().ensure_initialized()
            # TensorFlow wraps the first fetch in a function, sends that to every live worker and
            # waits for them. Measured: with stopped workers the coordinator stood still for 37 s.
            # So the first fetch comes before the first worker.
            if peers.parameter_servers:
                self.ask_server(0)

    def _definition(self, workers: frozenset[int], servers: bool = True) -> Any:
        from tensorflow.core.protobuf import tensorflow_server_pb2

        definition = tensorflow_server_pb2.ServerDef(
            job_name="chief", task_index=0, protocol="grpc"
        )
        tasks: list[tuple[str, Mapping[int, str]]] = [
            ("chief", {0: self.peers.coordinator}),
            ("ps", dict(enumerate(self.peers.parameter_servers if servers else ()))),
            ("worker", {task: self.peers.workers[task] for task in sorted(workers)}),
        ]
        for name, addresses in tasks:
            if addresses:
                job = definition.cluster.job.add(name=name)
                for task, address in addresses.items():
                    job.tasks[task] = address
        session = definition.default_session_config
        # Each task has its own number of inter-op threads (core/server/role.py).
        session.intra_op_parallelism_threads = 1
        _fold_no_constants(session)
        if self._computes_on != "cpu":
            session.allow_soft_placement = self._soft_placement
        return definition

    def update(self, workers: frozenset[int]) -> None:
        """Make `workers` the live ones (0.01 to 0.03 s).

        Workers that join know the functions traced before.

        Blocks while a live task does not answer, until the watchdog cuts it off. Raises
        tf.errors.OpError.
        """
        _context().update_server_def(self._definition(workers), keep_alive_secs=KEEP_ALIVE_SECONDS)

    def require(self, check: Callable[[str], str | None]) -> None:
        """Have each worker that joins from now on pass `check`, which says why a place does not."""
        self._check = check

    def refusal(self, task: int) -> str | None:
        """Return why a worker that has just joined may not stay; None where it may.

        Raises tf.errors.OpError if it left before it answered, which is no refusal.
        """
        self.refused.pop(task, None)
        why = self._check(device("worker", task))
        if why is not None:
            self.refused[task] = why
        return why

    def has(self, place: str) -> bool:
        """Whether a live task has the device of this name."""
        return place in _context().devices()

    def ask_server(self, task: int) -> None:
        """Run a small operation on the parameter server. Raises tf.errors.OpError if that fails."""
        with tf.device(device("ps", task)):
            answer = tf.raw_ops.Identity(input=tf.constant(1.0))
        fetched(answer)

    @contextmanager
    def on_worker(self, task: int) -> Iterator[None]:
        """Run this thread's calls inside on the worker, through an executor of its own.

        With TensorFlow's default executor one stopped worker would block the calls to all others.
        Keep the executor for the thread's lifetime: at its end it waits for everything it was
        given, also for releases of tensors on a stopped worker (measured: that blocked the other
        workers in one run of three).
        """
        from tensorflow.python.eager import executor

        worker_executor = executor.new_executor(enable_async=False)
        eager = _context()
        before = eager.executor
        _HANDLES.append(before)
        eager.executor = worker_executor
        try:
            with tf.device(device("worker", task, self._computes_on)):
                yield
        finally:
            eager.executor = before
            # Its finalizer would print a traceback of a dead worker or server, which we have
            # reported long before.
            worker_executor.clear_error()
            _HANDLES.append(worker_executor)

    def close(self) -> None:
        """Leave the cluster: the servers drop our variables and functions at once.

        A coordinator that exits without this (os._exit, SIGKILL) leaves them there, and the next
        job's variables come on top (measured). If a parameter server does not answer, this does
        nothing: it would wait for that server. Then the watchdog stays until this process ends,
        because each variable that Python frees is a call to its server.
        """
        servers = dict(enumerate(map(split, self.peers.parameter_servers)))
        if self.guardian.losses or len(answering(servers, GOODBYE_SECONDS)) < len(servers):
            return
        alone = self._definition(frozenset(), servers=False)
        with self.guardian.operation(), suppress(tf.errors.OpError):
            _context().update_server_def(alone, keep_alive_secs=KEEP_ALIVE_SECONDS)
        if not self.guardian.losses:
            self.guardian.close()


def here() -> str:
    """TensorFlow's full name of this process's CPU.

    A worker's thread runs inside a worker's device scope. There a short name such as "CPU:0" means
    the worker's: TensorFlow sends each argument to the worker by a call of its own, and the worker
    keeps a part of it (measured: 3 KB a call).
    """
    return f"{_context().host_address_space()}/device:CPU:0"


def fetched(value: Any) -> Any:
    """NumPy values of a call's result, which may be on a worker. Raises tf.errors.OpError.

    A remote tensor's numpy() holds the interpreter lock while it waits for the worker, and freezes
    the coordinator if that worker stops at that moment (measured). An operation does not.
    """
    with tf.device(here()):
        return tf.nest.map_structure(
            lambda tensor: tf.raw_ops.Identity(input=tensor).numpy(), value
        )


class Traced:
    """A function that is traced once and called with NumPy values.

    The arguments travel as one tensor inside the request, a short result inside the answer
    (`core.engine.codecs`).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Sequence[Any],
        name: str = "",
        longest: int | None = None,
    ) -> None:
        """`name` is for people; the function's own without one. `longest`: see `trace`."""
        from tensorflow.python.framework.ops import EagerTensor

        self.name = name or getattr(function, "__name__", "")
        packing = PackedArguments(signature)
        self._pack = packing.pack
        self._answer: AnswerAsShape | None = None

        def unpacked(packed: Any) -> Any:
            result = function(*packing.unpack(packed))
            self._answer = AnswerAsShape.for_result(result, longest)
            if self._answer is None:
                return result
            return self._answer.carrying(result)

        self._concrete = tf.function(unpacked, autograph=False).get_concrete_function(
            packing.signature
        )
        # tf.function computes these in each call: a tenth of a call's processor time.
        self._name = self._concrete.name
        self._captured = list(self._concrete.captured_inputs)
        self._outputs = len(self._concrete.outputs)
        self._here = here()
        self._tensor = EagerTensor

    def __str__(self) -> str:
        return self.name

    def answer(self, *arguments: Any) -> Any:
        """NumPy values of the result.

        Raises ValueError if the arguments do not fit, and tf.errors.OpError.
        """
        result = self._call(arguments)
        if self._answer is None:
            return fetched(result)
        return self._answer.value_of(result)

    def __call__(self, *arguments: Any) -> Any:
        """The result as tensors, on whatever device they are. Raises as `answer` does."""
        result = self._call(arguments)
        if self._answer is None:
            return result
        return tf.constant(self._answer.value_of(result))

    def _call(self, arguments: tuple[Any, ...]) -> Any:
        packed = self._tensor(self._pack(arguments), self._here, None)
        outputs = _context().call_function(self._name, [packed, *self._captured], self._outputs)
        return self._concrete.function_type.pack_output(outputs)


def trace(
    function: Callable[..., Any], *signature: Any, name: str = "", longest: int | None = None
) -> Traced:
    """Trace `function` once for this signature (tf.TensorSpec) and never again.

    A call with other shapes raises instead of tracing again: tracing freezes the coordinator while
    a worker is stopped.

    A result that is a vector whose length only the call knows, of at most `longest` elements,
    travels in the answer as a short one does.
    """
    return Traced(function, signature, name, longest)
