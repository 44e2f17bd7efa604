"""The fallback: TensorFlow's own `tf.distribute.Server`, for wheels whose C API the lean server does not fit."""

from importlib.util import find_spec

from cluster.errors import ClusterError
from cluster.server.definition import PROTOCOL, ServerDefinition
from cluster.server.library import missing


class StockServer:
    """The same life as `LeanServer` at 225 MB instead of 84 MB of anonymous memory: it imports Python's tensorflow.

    Listens from construction on, answers calls from `start` on. Raises ClusterError with TensorFlow's own words.
    """

    def __init__(self, definition: ServerDefinition) -> None:
        if find_spec("tensorflow") is None:
            raise missing()
        import tensorflow as tf

        self._errors = tf.errors.OpError
        configuration = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=definition.intra_op_threads,
            inter_op_parallelism_threads=definition.inter_op_threads,
        )
        try:
            self._server = tf.distribute.Server(
                tf.train.ClusterSpec({definition.job: {definition.task: definition.address}}),
                job_name=definition.job,
                task_index=definition.task,
                protocol=PROTOCOL,
                config=configuration,
                start=False,
            )
        except self._errors as error:
            raise ClusterError(f"no TensorFlow server on {definition.address}: {error.message}") from error

    def start(self) -> None:
        """Begin to answer calls, on threads of TensorFlow's own; returns at once."""
        try:
            self._server.start()
        except self._errors as error:
            raise ClusterError(f"the TensorFlow server did not start: {error.message}") from error
