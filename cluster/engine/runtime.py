"""TensorFlow's distributed runtime for the dispatcher. No other module uses TensorFlow's private names.

One eager context spans the live tasks only; tasks join and leave it while the variables on the parameter servers stay.
The public `tf.config.experimental_connect_to_cluster` starts over instead. `tests/engine/test_private_names.py`
pins what is used here against the installed TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.calls import AnswerAsShape, PackedArguments
from cluster.server.probe import answers

import tensorflow as tf  # isort: skip
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context, executor
from tensorflow.python.framework import ops

# Grappler rewrites a tree of additions into one n-ary sum, which adds in another order. Whether it does depends on how
# a step is cut into parts, and so would the bits of the result (measured).
tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})

KEEP_ALIVE_SECONDS = 600
"""How long a server keeps our context after our last heartbeat: TensorFlow's own default.

With 60 s a worker dropped our context while sixteen workers loaded a job's functions on two busy cores: the first
answer took 107 s, and our heartbeats came too late. A restart of the roles removes what a killed coordinator leaves.
"""

GOODBYE_SECONDS = 2.0
"""How long we wait for a parameter server's answer before we leave the cluster without a message."""

_HANDLES: list[Any] = []
"""On the default executor, one a lane, until the process ends.

A handle's finalizer waits for that executor and prints a traceback of any failure there, such as a read from a dead
parameter server, long after we have reported it (measured: one a worker).
"""

_NETWORKS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

_UNKNOWN_DEVICE = "unknown device"


def transient(problem: Exception) -> bool:
    """Whether another attempt can succeed: the network failed or a process died, so the item is not the cause.

    A call to a worker that leaves the cluster definition at that moment ends as a wrong argument (measured).
    """
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return _UNKNOWN_DEVICE in str(problem.message)
    return isinstance(problem, _NETWORKS)


@dataclass(frozen=True)
class Peers:
    """Addresses ("host:port") of every task in the inventory."""

    coordinator: str
    parameter_servers: tuple[str, ...]
    workers: tuple[str, ...]


def device(role: str, task: int) -> str:
    """TensorFlow's name of the CPU of a task."""
    return f"/job:{role}/replica:0/task:{task}/device:CPU:0"


class Runtime:
    """The coordinator's connection to the cluster."""

    def __init__(self, peers: Peers) -> None:
        """Connect to the parameter servers, and to no worker yet. Raises tf.errors.OpError if one cannot be reached."""
        self.peers = peers
        context.context().set_server_def(self._definition(frozenset()), keep_alive_secs=KEEP_ALIVE_SECONDS)
        context.ensure_initialized()
        # TensorFlow wraps the first fetch in a function, sends that to every live worker and waits for them. Measured:
        # with stopped workers the coordinator stood still for 37 s. So the first fetch comes before the first worker.
        if peers.parameter_servers:
            self.ask_server(0)

    def _definition(self, workers: frozenset[int], servers: bool = True) -> Any:
        definition = tensorflow_server_pb2.ServerDef(job_name="chief", task_index=0, protocol="grpc")
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
        definition.default_session_config.inter_op_parallelism_threads = len(self.peers.workers) + 4
        definition.default_session_config.intra_op_parallelism_threads = 1
        return definition

    def update(self, workers: frozenset[int]) -> None:
        """Make `workers` the live ones (0.01 to 0.03 s). Workers that join know the functions traced before.

        Blocks while a live task does not answer, until the watchdog cuts it off. Raises tf.errors.OpError.
        """
        context.context().update_server_def(self._definition(workers), keep_alive_secs=KEEP_ALIVE_SECONDS)

    def ask_server(self, task: int) -> None:
        """Run a small operation on the parameter server. Raises tf.errors.OpError if that fails."""
        with tf.device(device("ps", task)):
            made = tf.raw_ops.Identity(input=tf.constant(1.0))
        fetched(made)

    @contextmanager
    def lane(self, task: int) -> Iterator[None]:
        """Calls made inside by this thread run on the worker, through an executor of the thread's own.

        With TensorFlow's default executor one stopped worker would block the calls to all others. Keep the executor for
        the thread's lifetime: at its end it waits for everything it was given, also for releases of tensors on a
        stopped worker (measured: that blocked the other workers in one run of three).
        """
        own = executor.new_executor(enable_async=False)
        eager = context.context()
        before = eager.executor
        _HANDLES.append(before)
        eager.executor = own
        try:
            with tf.device(device("worker", task)):
                yield
        finally:
            eager.executor = before
            # Its finalizer would print a traceback of a dead worker or server, which we have reported long before.
            own.clear_error()
            _HANDLES.append(own)

    def close(self) -> None:
        """Leave the cluster: the servers drop our variables and functions at once.

        A coordinator that exits without this (os._exit, SIGKILL) leaves them there, and the next job's variables come
        on top (measured). If a parameter server does not answer, this does nothing: it would wait for that server.
        """
        addresses = (address.rpartition(":") for address in self.peers.parameter_servers)
        if all(answers(host, int(port), GOODBYE_SECONDS) for host, _, port in addresses):
            alone = self._definition(frozenset(), servers=False)
            with suppress(tf.errors.OpError):
                context.context().update_server_def(alone, keep_alive_secs=KEEP_ALIVE_SECONDS)


def here() -> str:
    """TensorFlow's full name of this process's CPU.

    A lane runs inside a worker's device scope. There a short name such as "CPU:0" means the worker's: TensorFlow sends
    each argument to the worker by a call of its own, and the worker keeps a part of it (measured: 3 KB a call).
    """
    return f"{context.context().host_address_space()}/device:CPU:0"


def fetched(value: Any) -> Any:
    """NumPy values of a call's result, which may be on a worker. Raises tf.errors.OpError.

    A remote tensor's numpy() holds the interpreter lock while it waits for the worker, and freezes the coordinator if
    that worker stops at that moment (measured). An operation does not.
    """
    with tf.device(here()):
        return tf.nest.map_structure(lambda tensor: tf.raw_ops.Identity(input=tensor).numpy(), value)


class Traced:
    """A function that is traced once and called with NumPy values.

    The arguments travel as one tensor inside the request, a short result inside the answer (`cluster.engine.calls`).
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any]) -> None:
        packing = PackedArguments(signature)
        self._pack = packing.pack
        self._answer: AnswerAsShape | None = None

        def unpacked(packed: Any) -> Any:
            result = function(*packing.unpack(packed))
            if not AnswerAsShape.fits(result):
                return result
            self._answer = AnswerAsShape.of(result)
            return self._answer.written(result)

        self._concrete = tf.function(unpacked, autograph=False).get_concrete_function(packing.signature)
        # tf.function computes these in each call: a tenth of a call's processor time.
        self._name, self._captured = self._concrete.name, list(self._concrete.captured_inputs)
        self._outputs, self._here = len(self._concrete.outputs), here()

    def answer(self, *arguments: Any) -> Any:
        """NumPy values of the result. Raises ValueError if the arguments do not fit, and tf.errors.OpError."""
        result = self._call(arguments)
        return fetched(result) if self._answer is None else self._answer.read(result)

    def __call__(self, *arguments: Any) -> Any:
        """The result as tensors, on whatever device they are. Raises as `answer` does."""
        result = self._call(arguments)
        return result if self._answer is None else tf.constant(self._answer.read(result))

    def _call(self, arguments: tuple[Any, ...]) -> Any:
        packed = ops.EagerTensor(self._pack(arguments), self._here, None)
        found = context.context().call_function(self._name, [packed, *self._captured], self._outputs)
        return self._concrete.function_type.pack_output(found)


def trace(function: Callable[..., Any], *signature: Any) -> Traced:
    """Trace `function` once for this signature (tf.TensorSpec) and never again.

    A call with other shapes raises instead of tracing again: tracing freezes the coordinator while a worker is stopped.
    """
    return Traced(function, signature)
