"""TensorFlow's distributed runtime, as the dispatcher needs it. The only module that uses TensorFlow's private names.

One eager context spans the live tasks only; tasks join and leave it while variables on the parameter servers stay. The
public `tf.config.experimental_connect_to_cluster` cannot do that: it starts over. `tests/engine/test_private_names.py`
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

# Grappler rewrites a tree of additions into one n-ary sum, which adds in another order: whether it does depends on how
# a step was cut into parts, and so would the bits of the result (measured).
tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})

KEEP_ALIVE_SECONDS = 600
"""How long a server keeps our context after our last sign of life: TensorFlow's own default.

With 60 a worker forgot us while sixteen of them loaded a job's functions on two busy cores: their first answer took
107 s, and our signs of life came too late. What a killed coordinator leaves goes with the roles' restart, not by this.
"""

GOODBYE_SECONDS = 2.0
"""How long a parameter server may take to answer before we leave without a word."""

_HANDLES: list[Any] = []
"""On the default executor, one a lane, until the process ends.

A handle's finalizer waits for that executor and prints a traceback of whatever failed there, as reading from a dead
parameter server does, long after it was told (measured: one a worker).
"""

_NETWORKS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

_UNKNOWN_DEVICE = "unknown device"


def transient(problem: Exception) -> bool:
    """Whether another attempt may well succeed: the network failed, or a process died, and the item is not to blame.

    A call to a worker that leaves the cluster definition just then ends as a wrong argument (measured).
    """
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return _UNKNOWN_DEVICE in str(problem.message)
    return isinstance(problem, _NETWORKS)


@dataclass(frozen=True)
class Peers:
    """Addresses ("host:port") of every task the inventory names."""

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
        """Make `workers` the live ones (0.01 to 0.03 s). Functions traced before are known to those that join.

        Blocks while a live task does not answer; the watchdog ends that. Raises tf.errors.OpError.
        """
        context.context().update_server_def(self._definition(workers), keep_alive_secs=KEEP_ALIVE_SECONDS)

    def ask_server(self, task: int) -> None:
        """Have the parameter server do an operation of our own. Raises tf.errors.OpError if it does not."""
        with tf.device(device("ps", task)):
            made = tf.raw_ops.Identity(input=tf.constant(1.0))
        fetched(made)

    @contextmanager
    def lane(self, task: int) -> Iterator[None]:
        """Calls made inside by this thread run on the worker, through an executor of the thread's own.

        With TensorFlow's default executor one stopped worker would hold up the calls to all others. Keep it for the
        thread's lifetime: an executor that goes away waits for all it was ever asked to do, releases of tensors on a
        stopped worker included (measured: that held up the other workers in one run of three).
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
            # Its finalizer would print the traceback of a worker's or server's death, which has long been told.
            own.clear_error()
            _HANDLES.append(own)

    def close(self) -> None:
        """Leave the cluster: the servers drop our variables and functions at once.

        A coordinator that exits without this (os._exit, SIGKILL) leaves them there: measured, the next job's variables
        came on top. A parameter server that does not answer is left alone, for this would wait for it.
        """
        addresses = (address.rpartition(":") for address in self.peers.parameter_servers)
        if all(answers(host, int(port), GOODBYE_SECONDS) for host, _, port in addresses):
            nobody = self._definition(frozenset(), servers=False)
            with suppress(tf.errors.OpError):
                context.context().update_server_def(nobody, keep_alive_secs=KEEP_ALIVE_SECONDS)


def here() -> str:
    """TensorFlow's full name of this process's CPU.

    A lane lies inside a worker's device scope. There a short name such as "CPU:0" means the worker's: each argument
    becomes a tensor that the worker is sent by a call of its own and never quite forgets (measured: 3 KB a call).
    """
    return f"{context.context().host_address_space()}/device:CPU:0"


def fetched(value: Any) -> Any:
    """NumPy values of a call's result, which may lie on a worker. Raises tf.errors.OpError.

    A remote tensor's numpy() holds the interpreter lock while it waits for the worker, and with it the whole
    coordinator if that worker is stopped just then (measured). An operation does not.
    """
    with tf.device(here()):
        return tf.nest.map_structure(lambda tensor: tf.raw_ops.Identity(input=tensor).numpy(), value)


class Traced:
    """A function that is traced once, called with NumPy values, which travel inside the request as one tensor.

    A short result travels inside the answer (`cluster.engine.calls`).
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
        # What tf.function's own call works out each time anew: a tenth of a call's processor time.
        self._name, self._captured = self._concrete.name, list(self._concrete.captured_inputs)
        self._outputs, self._here = len(self._concrete.outputs), here()

    def answer(self, *arguments: Any) -> Any:
        """NumPy values of the result. Raises ValueError if the arguments do not fit, and tf.errors.OpError."""
        result = self._call(arguments)
        return fetched(result) if self._answer is None else self._answer.read(result)

    def __call__(self, *arguments: Any) -> Any:
        """The result as tensors, wherever they lie. Raises as `answer` does."""
        result = self._call(arguments)
        return result if self._answer is None else tf.constant(self._answer.read(result))

    def _call(self, arguments: tuple[Any, ...]) -> Any:
        packed = ops.EagerTensor(self._pack(arguments), self._here, None)
        found = context.context().call_function(self._name, [packed, *self._captured], self._outputs)
        return self._concrete.function_type.pack_output(found)


def trace(function: Callable[..., Any], *signature: Any) -> Traced:
    """Trace `function` once for this signature (tf.TensorSpec) and never again.

    A call with other shapes raises instead of tracing anew, which would freeze the coordinator if a worker were
    stopped just then.
    """
    return Traced(function, signature)
