import json
from dataclasses import astuple
from itertools import product

import pytest

from core.server.tensorflow_server import ServerDefinition
from tests.core.server.processes import python

PARSE = """
import importlib.util, json, sys, types
# The generated messages alone, without the tens of megabytes of tensorflow/__init__.py.
package = types.ModuleType("tensorflow")
package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
sys.modules["tensorflow"] = package
from tensorflow.core.protobuf import tensorflow_server_pb2
for line in sys.stdin:
    server = tensorflow_server_pb2.ServerDef.FromString(bytes.fromhex(line))
    (job,) = server.cluster.job
    ((task, address),) = job.tasks.items()
    session = server.default_session_config
    assert (job.name, task, server.protocol) == (server.job_name, server.task_index, "grpc")
    print(json.dumps([job.name, task, address, session.intra_op_parallelism_threads,
                      session.inter_op_parallelism_threads]))
"""
NUMBERS = (1, 15, 127, 128, 300, 16_383, 16_384, 70_000, 2**31 - 1)
ADDRESSES = ("127.0.0.1:2222", "[fd5a:77::1]:65535", "x", "größer als 127" * 20)


def test_tensorflow_reads_what_was_encoded() -> None:
    """In a process of its own, whose half-imported tensorflow nobody else meets."""
    definitions = [
        ServerDefinition(job, task, address, intra, inter)
        for job, task, address, intra, inter in product(
            ("ps", "worker"), (0, *NUMBERS), ADDRESSES, NUMBERS, (1, 18, 2**31 - 1)
        )
    ]
    done = python("-c", PARSE, said="".join(f"{each.encode().hex()}\n" for each in definitions))
    assert done.returncode == 0, done.stderr
    found = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert found == [astuple(each) for each in definitions]


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a value of at least 0, got -1"):
        ServerDefinition("ps", -1, "127.0.0.1:2222", 1, 3).encode()
