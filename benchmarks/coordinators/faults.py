"""The coordinator of `benchmarks.faults`, whose updates are distinguishable afterwards.

The update with id i is a gradient of -1 at elements i and i + IDS of the first parameter server's
shard and of the second's, 0 elsewhere, under plain SGD with rate 1. So at the end each element *is*
the number of times that its update was applied at that shard: a lost one cannot hide behind a
doubled one. Runs on a cluster that a supervisor keeps, injects faults until there were enough, and
prints one row as JSON.

A worker that keeps something back holds a part of the gradients. `topk` sends everything it has
with each push, so that a killed worker takes nothing along; `residual` sends one of an update's two
elements and keeps the other, as `onebit` keeps a part of each, and what counts is what was applied
plus what the workers still keep: under faults that kill no worker, exactly 1. `int4` rounds nothing
here.
"""

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cluster.jobs.modes import Memories
from cluster.jobs.run_logs import SUPERVISOR, ChaosLog
from core.engine.chaos import Chaos, ChaosPlan, Fault
from core.engine.codecs import Codec
from core.engine.codecs.fp16 import Fp16
from core.engine.codecs.fp32 import Fp32
from core.engine.codecs.int4 import Int4
from core.engine.codecs.int8 import Int8
from core.engine.codecs.onebit import OneBit
from core.engine.codecs.topk import TopK
from core.engine.dispatcher import Dispatcher
from core.engine.membership import TimeLimits
from core.engine.runtime import Peers, Runtime, Traced, device, trace
from core.engine.threads import Saboteur
from core.engine.workers import Item
from core.ground.lazy import tf
from core.inventory import load
from core.parameters import Layout, ParameterSpec
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState, Wire
from ps_node.shards import Header, ParameterShards
from worker_node.sender import Sender

IDS = 16_384
"""Distinguishable updates. Shards end at blocks of 1,024, so two are cut in the middle."""

ELEMENTS = 2 * IDS
"""Of a shard."""

CODECS: dict[str, Codec] = {
    "fp32": Fp32(),
    "fp16": Fp16(),
    "int8": Int8(),
    "int4": Int4(),
    "onebit": OneBit(),
    "topk": TopK(0.5),
    "residual": TopK(1.0 / ELEMENTS),
}
"""What pushes travel in: `topk` has room for all there is, `residual` for one element a shard and
push."""

OWNER = 1
"""Of what the workers remember: there is one run."""

TO_PROCESSES = (Fault.KILL_WORKER, Fault.STOP_WORKER)
LONGEST_SECONDS = 2.0
TIMING = TimeLimits(
    first_reply_seconds=20.0, floor_seconds=1.0, slow_factor=3.0, longest_cooldown_seconds=2.0
)
"""A deadline floor of 1 s, so that stopped workers and late replies outlast it, and workers that
are back soon."""

SPIN = 2_000
"""Turns of the loop that is the computation: some milliseconds, in which a worker can be struck."""

PATIENCE_SECONDS = 60.0


class Counting:
    """A connected cluster with the counting update."""

    def __init__(self, inventory: Path, saboteur: Saboteur, codec: Codec) -> None:
        """Connect and trace. Raises ValueError unless there are two parameter servers."""
        found = load(inventory)
        servers = found.of_role("ps")
        workers = found.of_role("worker")
        if len(servers) != 2:
            raise ValueError(f"{inventory}: expected 2 parameter servers, got {len(servers)}")
        self.workers = len(workers)
        peers = Peers(
            found.task("coordinator", 0).address,
            tuple(server.address for server in servers),
            tuple(worker.address for worker in workers),
        )
        self._runtime = Runtime(peers)
        layout = Layout([ParameterSpec("count", (2 * ELEMENTS,))])
        places = [device("ps", place) for place in range(2)]
        start = VectorState(np.zeros(2 * ELEMENTS, np.float32))
        self.shards = ParameterShards(layout, start, MomentumSGD(), places, Wire(push=codec))
        self._remembers = not codec.stateless
        sender = Sender(self.shards)
        # The same owner in every run would find what an earlier one left on the workers.
        owner = tf.constant(
            [OWNER + int(np.random.SeedSequence().generate_state(1)[0]), 0], tf.int64
        )

        def update(identifier: Any) -> Any:
            begun = sender.begin(owner)
            trained, statistics, versions = self.shards.pull()
            busy = tf.while_loop(
                lambda step, _: step < SPIN,
                lambda step, x: (step + 1, tf.sin(x) + 1.0),
                [0, tf.reduce_sum(trained)],
            )[1]
            gradient = (
                -tf.reduce_sum(tf.one_hot([identifier, identifier + IDS], ELEMENTS), 0) + 0.0 * busy
            )
            header = Header(identifier, tf.constant(1.0), versions)
            outcome = sender.push(begun, tf.concat([gradient, gradient], 0), statistics, header)
            return tf.stack([outcome.fresh, tf.cast(begun.forgot, tf.int64)])

        self.update = trace(update, tf.TensorSpec([], tf.int64))
        self._kept = trace(lambda: tf.reduce_sum(sender.begin(owner).settled.rows, 0))
        self.dispatcher = Dispatcher(self._runtime, TIMING, PATIENCE_SECONDS, saboteur)

    def counted(self) -> Any:
        """Times each id was applied, or is kept by a worker: int64 [elements, ids].

        Call it while nothing is pushed.
        """
        there = self.shards.read()
        if self._remembers:
            for outcome in self.dispatcher.run(OneEach(self._kept, self.dispatcher.live)):
                there = there - outcome.value
        return np.rint(there).astype(np.int64).reshape(4, IDS)

    def close(self) -> None:
        """Leave the cluster."""
        self.dispatcher.close()
        self._runtime.close()


class OneEach:
    """A source that asks each of these workers the same, once."""

    def __init__(self, function: Traced, tasks: Collection[int]) -> None:
        self._function, self._left = function, set(tasks)

    def draw(self, task: int) -> Item | None:
        """See ItemSource. Never twice, and never by another: the answer is about the worker."""
        if task not in self._left:
            return None
        self._left.remove(task)
        return Item(-1 - task, self._function, (), repeatable=False)

    def exhausted(self) -> bool:
        """See ItemSource."""
        return not self._left

    def withdrawn(self) -> list[int]:
        """See ItemSource: never any."""
        return []


def judge(applied: Any, scheduled: int) -> dict[str, int]:
    """What became of ids 0 to `scheduled` - 1; `applied` is int64 [elements, ids]."""
    known = applied[:, :scheduled]
    return {
        "lost": int((known < 1).any(0).sum()),
        "doubled": int((known > 1).any(0).sum()),
        "never_scheduled": int(applied[:, scheduled:].astype(bool).any(0).sum()),
    }


def run(inventory: Path, chaos: str, faults: int, to_processes: int, codec: str) -> dict[str, Any]:
    """Update until these numbers of faults, of all and of processes, were injected, or ids run out.

    The row.
    """
    begin = time.monotonic()
    with TemporaryDirectory() as folder:
        record = ChaosLog(Path(folder))
        plan = replace(ChaosPlan.parse(chaos), longest_seconds=LONGEST_SECONDS)
        saboteur = Saboteur(Chaos(plan, servers=2), record, Path(os.environ[SUPERVISOR]))
        cluster = Counting(inventory, saboteur, CODECS[codec])
        cluster.dispatcher.wait_for_workers(cluster.workers, PATIENCE_SECONDS)
        outcomes: Counter[int] = Counter()
        memories = Memories()
        scheduled = 0

        def enough() -> bool:
            injected = record.describe()["injected"]
            return sum(injected.values()) >= faults and _to_processes(injected) >= to_processes

        def updates() -> Iterator[Item]:
            nonlocal scheduled
            while scheduled < IDS and not enough():
                yield Item(scheduled, cluster.update, (np.int64(scheduled),))
                scheduled += 1

        with saboteur:
            for outcome in cluster.dispatcher.run(updates()):
                outcomes[outcome.item.id] += 1
                memories.record_reply(outcome.task, 0, forgot=bool(outcome.value[1]))
        # A stopped or disconnected worker pushes its old update when it returns: the shard must
        # drop that, too.
        joined = cluster.dispatcher.wait_for_workers(cluster.workers, PATIENCE_SECONDS)
        applied = cluster.counted()
        totals = cluster.shards.totals()
        membership = cluster.dispatcher.membership
        cluster.close()
    injected = record.describe()["injected"]
    return {
        "what": f"counting updates, {codec}",
        "codec": codec,
        "workers": cluster.workers,
        "workers_at_the_end": joined,
        "ps": 2,
        "chaos": chaos,
        "injected": injected,
        "to_processes": _to_processes(injected),
        "updates": scheduled,
        "outcomes": outcomes.total(),
        "outcomes_twice": sum(count > 1 for count in outcomes.values()),
        **judge(applied, scheduled),
        "memories_lost": memories.lost,
        "duplicates_dropped": totals.duplicates_dropped,
        "late_replies": membership.late_replies,
        "departures": sum(worker.departures for worker in membership.workers.values()),
        "seconds": round(time.monotonic() - begin, 1),
    }


def _to_processes(injected: dict[str, int]) -> int:
    return sum(injected.get(fault, 0) for fault in TO_PROCESSES)


def main() -> None:
    """Run it and print the row on the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordinators.faults")
    parser.add_argument("--inventory", type=Path, required=True)
    parser.add_argument("--faults", type=int, required=True)
    parser.add_argument("--to-processes", type=int, required=True)
    parser.add_argument("--chaos", required=True)
    parser.add_argument("--codec", choices=CODECS, default="fp32")
    given = parser.parse_args()
    print(
        json.dumps(
            run(given.inventory, given.chaos, given.faults, given.to_processes, given.codec)
        ),
        flush=True,
    )
    os._exit(0)  # TensorFlow's server threads cannot be joined


if __name__ == "__main__":
    main()
