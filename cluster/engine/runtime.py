"""TensorFlow's distributed runtime for the dispatcher. No other module uses TensorFlow's private names.

One eager context spans the live tasks only; tasks join and leave it while the variables on the parameter servers stay.
The public `tf.config.experimental_connect_to_cluster` starts over instead. `tests/engine/test_private_names.py`
pins what is used here against the installed TensorFlow.

How a call travels (`Traced`). Arguments: each further tensor would cost the coordinator the time of one more message.
So one tensor carries them all: the unknown first dimensions, one int32 each, then the bits of every argument in 32-bit
words. Nothing computes with the words, so no bit changes.

Results: TensorFlow leaves the result of a call on the worker and answers with its shape alone. To read the values, the
coordinator sends two more requests: one that has the worker send them, one that receives them. They take half of the
processor time that a call costs the coordinator (measured). The shape costs nothing: it is in the answer that the
coordinator waits for anyway. So the worker puts a short result into a shape. It returns an empty tensor whose first
size is 0, which makes it empty, and whose other sizes are the bits of the result as 32-bit words. The coordinator reads
the sizes and turns the words back into values.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.server.probe import answers

import tensorflow as tf  # isort: skip
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context, executor
from tensorflow.python.framework import kernels, ops

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

WORD_BYTES = 4
MOST_WORDS = 250
"""TensorFlow has at most 254 dimensions."""


def transient(problem: Exception) -> bool:
    """Whether another attempt can succeed: the network failed or a process died, so the item is not the cause.

    A call to a worker that leaves the cluster definition at that moment ends as a wrong argument (measured).
    """
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return "unknown device" in str(problem.message)
    network = tf.errors.UnavailableError | tf.errors.AbortedError
    return isinstance(problem, network | tf.errors.CancelledError | tf.errors.DeadlineExceededError)


def has_cpu_kernel(op: str) -> bool:
    """Whether TensorFlow computes this op on a CPU; True for one that needs no kernel, such as a call."""
    registered = kernels.get_registered_kernels_for_op(op).kernel
    return not registered or any(kernel.device_type in ("CPU", "DEFAULT") for kernel in registered)


def one_thread_an_operation() -> None:
    """Have each operation of this process compute on one thread, so that the number of cores changes no bit.

    Call it before anything else uses TensorFlow: the first variable, such as a Keras layer's, starts the threads.
    Raises RuntimeError if they run and are more than one an operation.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)


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

    def __init__(self, peers: Peers, computes_on: str = "cpu", *, soft_placement: bool = True) -> None:
        """Connect to the parameter servers, and to no worker yet. Raises tf.errors.OpError if one cannot be reached.

        `computes_on`: the kind of device that runs the workers' functions. Without `soft_placement` an operation that
        such a device has no kernel for, where a function puts it there by name, fails.
        """
        self.peers, self._computes_on, self._soft_placement = peers, computes_on, soft_placement
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
        if self._computes_on != "cpu":
            definition.default_session_config.allow_soft_placement = self._soft_placement
        return definition

    def update(self, workers: frozenset[int]) -> None:
        """Make `workers` the live ones (0.01 to 0.03 s). Workers that join know the functions traced before.

        Blocks while a live task does not answer, until the watchdog cuts it off. Raises tf.errors.OpError.
        """
        context.context().update_server_def(self._definition(workers), keep_alive_secs=KEEP_ALIVE_SECONDS)

    def has(self, place: str) -> bool:
        """Whether a live task has the device of this name."""
        return place in context.context().devices()

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
            with tf.device(device("worker", task, self._computes_on)):
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
        if all(answers(*split(address), GOODBYE_SECONDS) for address in self.peers.parameter_servers):
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


@dataclass(frozen=True)
class _Argument:
    dtype: Any
    shape: tuple[int | None, ...]

    @property
    def words_a_row(self) -> int:
        """32-bit words of one row, or of the whole argument if its shape is known."""
        known = self.shape[1:] if self.open else self.shape
        words: int = self.dtype.size // WORD_BYTES
        return math.prod(size or 0 for size in known) * words

    @property
    def open(self) -> bool:
        """Whether only the call says how many rows it has."""
        return bool(self.shape) and self.shape[0] is None


class PackedArguments:
    """Packs the arguments of one signature (tf.TensorSpec) into one int32 vector, and unpacks them."""

    def __init__(self, signature: Sequence[Any]) -> None:
        """Raises ValueError for types of less than 32 bits, and for an unknown dimension that is not the first."""
        self._arguments = [_Argument(spec.dtype, tuple(spec.shape)) for spec in signature]
        for argument in self._arguments:
            if argument.dtype.size % WORD_BYTES or None in argument.shape[1:]:
                raise ValueError(
                    f"expected arguments of 32-bit words, of which only the first dimension may be unknown, got "
                    f"{argument.dtype.name} {list(argument.shape)}"
                )
        self._open = [argument for argument in self._arguments if argument.open]

    @property
    def signature(self) -> Any:
        """The tf.TensorSpec of the packed vector."""
        known = len(self._open) + sum(argument.words_a_row for argument in self._arguments)
        return tf.TensorSpec([None if self._open else known], tf.int32)

    def pack(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """The packed vector. Raises ValueError if the values do not fit the signature."""
        arrays = [np.asarray(value, order="C") for value in values]
        fits = len(arrays) == len(self._arguments) and all(map(_fits, arrays, self._arguments))
        if not fits:
            expected = ", ".join(f"{each.dtype.name} {list(each.shape)}" for each in self._arguments)
            got = ", ".join(f"{array.dtype} {list(array.shape)}" for array in arrays)
            raise ValueError(f"expected the arguments {expected}, got {got}")
        rows = [len(array) for array, argument in zip(arrays, self._arguments, strict=True) if argument.open]
        return np.concatenate([np.array(rows, np.int32), *(array.reshape(-1).view(np.int32) for array in arrays)])

    def unpack(self, packed: Any) -> list[Any]:
        """The arguments in the vector, in a graph."""
        unknown = iter(tf.unstack(packed[: len(self._open)], num=len(self._open)))
        rows = [next(unknown) if each.open else 1 for each in self._arguments]
        sizes = [each.words_a_row * count for each, count in zip(self._arguments, rows, strict=True)]
        parts = tf.split(packed, [len(self._open), *sizes], num=len(sizes) + 1)[1:]
        return [_restored(*each) for each in zip(parts, self._arguments, rows, strict=True)]


def _fits(array: NDArray[Any], argument: _Argument) -> bool:
    shape = argument.shape
    same = array.ndim == len(shape) and array.shape[argument.open :] == shape[argument.open :]
    return bool(same and array.dtype == argument.dtype.as_numpy_dtype)


def _restored(words: Any, argument: _Argument, rows: Any) -> Any:
    shape = tf.stack([rows, *argument.shape[1:]]) if argument.open else argument.shape
    if argument.dtype.size == WORD_BYTES:
        return tf.reshape(tf.bitcast(words, argument.dtype), shape)
    return tf.reshape(tf.bitcast(tf.reshape(words, [-1, argument.dtype.size // WORD_BYTES]), argument.dtype), shape)


class AnswerAsShape:
    """Writes results of one type and shape as a shape, and reads them."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape

    @classmethod
    def of(cls, result: Any) -> "AnswerAsShape | None":
        """The form of `result`, in a graph, if it is one tensor of known shape and at most 250 words of 32 bits."""
        if not isinstance(result, tf.Tensor) or not result.shape.is_fully_defined():
            return None
        plain = result.dtype.is_floating or result.dtype.is_integer
        words, rest = divmod(math.prod(result.shape) * result.dtype.size, WORD_BYTES)
        fits = plain and result.dtype.size >= WORD_BYTES and not rest and words <= MOST_WORDS
        return cls(result.dtype.as_numpy_dtype, tuple(result.shape)) if fits else None

    @staticmethod
    def written(result: Any) -> Any:
        """The empty tensor that carries `result`, in a graph."""
        words = tf.cast(tf.reshape(tf.bitcast(result, tf.uint32), [-1]), tf.int64)
        return tf.fill(tf.concat([tf.zeros([1], tf.int64), words], 0), tf.constant(0, tf.int32))

    def read(self, answer: Any) -> NDArray[Any]:
        """The result that `answer` carries."""
        found: NDArray[Any] = np.array(answer.shape.as_list()[1:], np.uint32).view(self._dtype)
        return found.reshape(self._shape)


class Traced:
    """A function that is traced once and called with NumPy values.

    The arguments travel as one tensor inside the request, a short result inside the answer (`cluster.engine.runtime`).
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any]) -> None:
        packing = PackedArguments(signature)
        self._pack = packing.pack
        self._answer: AnswerAsShape | None = None

        def unpacked(packed: Any) -> Any:
            result = function(*packing.unpack(packed))
            self._answer = AnswerAsShape.of(result)
            return result if self._answer is None else self._answer.written(result)

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
