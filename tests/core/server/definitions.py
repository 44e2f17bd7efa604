"""A cluster's definition for a coordinator that a test writes itself."""

from typing import Any


def definition(coordinator: int, ps: int, workers: list[int]) -> Any:
    from tensorflow.core.protobuf import tensorflow_server_pb2

    server = tensorflow_server_pb2.ServerDef(job_name="coordinator", task_index=0, protocol="grpc")
    for job, ports in (("coordinator", [coordinator]), ("ps", [ps]), ("worker", workers)):
        entry = server.cluster.job.add(name=job)
        for task, port in enumerate(ports):
            entry.tasks[task] = f"127.0.0.1:{port}"
    return server
