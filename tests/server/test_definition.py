import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.server.tensorflow_server import ServerDefinition
from tests.server.processes import HANG_SECONDS, PROJECT

PARSE = """
import importlib.util, sys, types
# The generated messages alone, without the tens of megabytes of tensorflow/__init__.py.
package = types.ModuleType("tensorflow")
package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
sys.modules["tensorflow"] = package
from tensorflow.core.protobuf import tensorflow_server_pb2
for line in sys.stdin:
    server = tensorflow_server_pb2.ServerDef.FromString(bytes.fromhex(line))
    (job,) = server.cluster.job
    session = server.default_session_config
    print(job.name, dict(job.tasks), server.job_name, server.task_index, server.protocol,
          session.intra_op_parallelism_threads, session.inter_op_parallelism_threads, sep="|")
"""


def test_tensorflow_reads_what_was_encoded() -> None:
    """In a process of its own, whose half-imported tensorflow nobody else meets."""
    definitions = [
        ServerDefinition("ps", 0, "127.0.0.1:2222", 1, 3),
        ServerDefinition("worker", 15, "192.168.1.31:2223", 4, 18),
        ServerDefinition("worker", 300, "[fd5a:77::1]:65535", 1, 70_000),
    ]
    lines = "".join(definition.encode().hex() + "\n" for definition in definitions)
    ended = subprocess.run(
        [sys.executable, "-c", PARSE], input=lines, capture_output=True, text=True, cwd=PROJECT, timeout=HANG_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "ps|{0: '127.0.0.1:2222'}|ps|0|grpc|1|3",
        "worker|{15: '192.168.1.31:2223'}|worker|15|grpc|4|18",
        "worker|{300: '[fd5a:77::1]:65535'}|worker|300|grpc|1|70000",
    ]


def decode(message: bytes) -> list[tuple[int, int | bytes]]:
    """(field, value) pairs of a protobuf message that holds only varints and length-delimited fields."""
    fields: list[tuple[int, int | bytes]] = []
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        key = varint()
        if key & 7 == 0:
            fields.append((key >> 3, varint()))
        else:
            length = varint()
            fields.append((key >> 3, message[position : position + length]))
            position += length
    return fields


@given(
    job=st.sampled_from(["ps", "worker"]),
    task=st.integers(0, 2**31 - 1),
    address=st.text(min_size=1, max_size=300),
    intra=st.integers(1, 2**31 - 1),
    inter=st.integers(1, 2**31 - 1),
)
def test_every_field_survives(job: str, task: int, address: str, intra: int, inter: int) -> None:
    fields = dict(decode(ServerDefinition(job, task, address, intra, inter).encode()))
    assert fields[2] == job.encode()
    assert fields[3] == task
    configuration, definition = fields[4], fields[1]
    assert isinstance(configuration, bytes)
    assert isinstance(definition, bytes)
    assert dict(decode(configuration)) == {2: intra, 5: inter}
    ((_, only_job),) = decode(definition)
    assert isinstance(only_job, bytes)
    (_, name), (_, tasks) = decode(only_job)
    assert name == job.encode()
    assert isinstance(tasks, bytes)
    assert decode(tasks) == [(1, task), (2, address.encode())]


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a value of at least 0, got -1"):
        ServerDefinition("ps", -1, "127.0.0.1:2222", 1, 3).encode()
