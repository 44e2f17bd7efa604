"""A coordinator, for a process of its own: counts on a parameter server from two workers, one of them stock.

Usage: python -m tests.server.interoperate COORDINATOR_PORT PS_PORT WORKER_PORT WORKER_PORT; prints what it saw as JSON.
"""

import json
import os
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", GRPC_FAIL_FAST="use_caller", CUDA_VISIBLE_DEVICES="-1")

import tensorflow as tf
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context

INCREMENTS = 25


def definition(coordinator: int, ps: int, workers: list[int]) -> tensorflow_server_pb2.ServerDef:
    server = tensorflow_server_pb2.ServerDef(job_name="coordinator", task_index=0, protocol="grpc")
    for job, ports in (("coordinator", [coordinator]), ("ps", [ps]), ("worker", workers)):
        entry = server.cluster.job.add(name=job)
        for task, port in enumerate(ports):
            entry.tasks[task] = f"127.0.0.1:{port}"
    return server


def main(coordinator: int, ps: int, *workers: int) -> None:
    context.set_server_def(definition(coordinator, ps, list(workers)))
    with tf.device("/job:ps/task:0"):
        total = tf.Variable(0.0)

    @tf.function
    def add(value: tf.Tensor) -> tf.Tensor:
        # Computed on the worker, added on the parameter server: the tensor crosses from one server to the other.
        doubled = tf.reduce_sum(tf.linalg.matmul(value, value))
        with tf.device("/job:ps/task:0"):
            total.assign_add(doubled)
        return doubled

    placed = []
    for _ in range(INCREMENTS):
        for task in range(len(workers)):
            with tf.device(f"/job:worker/task:{task}"):
                placed.append(add(tf.ones([4, 4])).backing_device)
    print(json.dumps({"total": float(total), "devices": sorted(set(placed)), "increments": len(placed)}))
    sys.stdout.flush()
    os._exit(0)  # the context's threads would keep the process


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
