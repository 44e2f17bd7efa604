"""The ServerDef that a TensorFlow server is started with, encoded without the protobuf runtime.

Three small messages do not justify the megabytes that `google.protobuf` and its generated modules would cost every
role process. Field numbers are those of tensorflow/core/protobuf/{cluster,tensorflow_server,config}.proto; a test
parses the bytes with TensorFlow's own classes.
"""

from dataclasses import dataclass

PROTOCOL = "grpc"


@dataclass(frozen=True)
class ServerDefinition:
    """A server that knows of itself alone; the coordinator's definition later tells it about the others.

    `task` may have gaps below it. `address` is `host:port`: TensorFlow takes the port from it and binds every
    interface. Thread counts go into the default session configuration. A server needs at least workers + 1 inter-op
    threads: with fewer, calls that wait for each other deadlock silently.
    """

    job: str
    task: int
    address: str
    intra_op_threads: int
    inter_op_threads: int

    def encode(self) -> bytes:
        """A serialized tensorflow.ServerDef."""
        task = _integer(1, self.task) + _bytes(2, self.address.encode())
        job = _bytes(1, self.job.encode()) + _bytes(2, task)
        configuration = _integer(2, self.intra_op_threads) + _integer(5, self.inter_op_threads)
        return (
            _bytes(1, _bytes(1, job))
            + _bytes(2, self.job.encode())
            + _integer(3, self.task)
            + _bytes(4, configuration)
            + _bytes(5, PROTOCOL.encode())
        )


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    if value < 0:
        raise ValueError(f"expected a value of at least 0, got {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
