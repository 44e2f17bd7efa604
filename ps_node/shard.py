"""One shard of the flat vector on its parameter server, and the whole vector over all shards.

Constraints are functions of a weight, applied after each update where the weight is.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.engine.changes import reaching_servers
from core.engine.codecs import Codec
from core.engine.codecs.fp32 import Fp32
from core.engine.runtime import trace
from core.ground.lazy import tf
from core.parameters import Layout, Shard, Vector
from ps_node.optimizers import Optimizer


class Constraints:
    """The constraints on elements [start, stop) of the trained vector.

    Weights that have one lie whole in there.
    """

    def __init__(self, layout: Layout, trained: tuple[int, int]) -> None:
        start, stop = trained
        self._slots = [slot for slot in layout.constrained if start <= slot.offset < stop]
        self._sizes = list[int]()
        end = start
        for slot in self._slots:
            self._sizes += [slot.offset - end, slot.spec.size]
            end = slot.offset + slot.spec.size
        self._sizes.append(stop - end)

    def __bool__(self) -> bool:
        return bool(self._slots)

    def applied(self, parameters: Any) -> Any:
        """Return `parameters`, (stop - start,), constrained; the other elements keep every bit."""
        pieces = tf.split(parameters, self._sizes)
        for place, slot in enumerate(self._slots):
            spec = slot.spec
            assert spec.constraint is not None
            weight = spec.constraint(tf.reshape(pieces[2 * place + 1], spec.shape))
            pieces[2 * place + 1] = tf.reshape(weight, [-1])
        return tf.concat(pieces, 0)


LEDGER_SLOTS = 65536
"""Places in the ledger. It never applies a duplicate, and refuses a new update once the one this
many ids later is in. At 200 updates a second that is five minutes behind the others, much longer
than the wait for any worker."""

VERSION_WORDS = 2
"""Elements at the end of a pull: the number of updates so far, an int64's two halves."""

APPLIED, DROPPED, OPTIMIZER_UPDATES, GENERATION = range(4)
"""Places in a shard's counts."""


@dataclass(frozen=True)
class VectorState:
    """The content of all shards as one consistent cut.

    `vector` has shape (layout.size,), each of `slots` (an optimizer's, by name)
    (layout.trained_size,). Every update with an id below `next_id` is applied, none at or above it.
    `optimizer_updates` of them came since the slots were zero.
    """

    vector: Vector
    slots: Mapping[str, Vector] = field(default_factory=dict)
    optimizer_updates: int = 0
    next_id: int = 0


@dataclass(frozen=True)
class Wire:
    """The codecs of a pull (parameters to the workers) and a push (updates to the servers)."""

    pull: Codec = field(default_factory=Fp32)
    push: Codec = field(default_factory=Fp32)


@dataclass(frozen=True)
class Totals:
    """The counts of the shards."""

    applied: int = 0
    """Updates applied by the shard with the fewest."""
    duplicates_dropped: int = 0
    """Pushes dropped by the shard with the most."""


def ledger_of(next_id: int) -> NDArray[np.int64]:
    """Return the ledger of a shard that has applied every id below `next_id`.

    It holds the newest id of each place.
    """
    places = np.arange(LEDGER_SLOTS, dtype=np.int64)
    newest = next_id - 1 - (next_id - 1 - places) % LEDGER_SLOTS
    return np.where(newest >= 0, newest, -1)


class ShardOnServer:
    """One shard: its variables live on `place`, TensorFlow's name of a device."""

    def __init__(
        self,
        shard: Shard,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        place: str,
        wire: Wire,
    ) -> None:
        self.shard = shard
        self.wire = wire
        self.device = place
        self.optimizer = optimizer.within(layout, shard.trained)
        self._constraints = Constraints(layout, shard.trained)
        self.trained_size = shard.trained[1] - shard.trained[0]
        self.statistics_size = shard.statistics[1] - shard.statistics[0]
        self._averaged = layout.averaged[slice(*shard.statistics)]
        trained, statistics, slots = self._cut(layout, state)
        with tf.device(place):
            self.parameters = tf.Variable(trained, name=f"parameters_{shard.index}")
            self.slots = tuple(tf.Variable(slot) for slot in slots)
            if statistics.size:
                self.statistics = tf.Variable(statistics)
            else:
                self.statistics = None
            self.counts = tf.Variable(
                tf.constant([state.next_id, 0, state.optimizer_updates, 0], tf.int64)
            )
            # A unique name: the server may still hold the lock of a run that was killed.
            self.unique_name = f"{shard.index}_{np.random.SeedSequence().entropy}"
            self.lock = tf.raw_ops.MutexV2(shared_name=f"shard_{self.unique_name}")

    def _cut(self, layout: Layout, state: VectorState) -> tuple[Vector, Vector, list[Vector]]:
        trained_slice = slice(*self.shard.trained)
        statistics = state.vector[layout.trained_size :][slice(*self.shard.statistics)]
        slots = [
            (
                state.slots[name][trained_slice]
                if name in state.slots
                else np.zeros(self.trained_size, np.float32)
            )
            for name in self.optimizer.slot_names
        ]
        return state.vector[trained_slice], statistics, slots

    def reset(self, layout: Layout, state: VectorState) -> None:
        """Hold `state` from now on. Counts and the ids in the ledger stay."""
        trained, statistics, slots = self._cut(layout, state)
        self.parameters.assign(trained)
        for variable, value in zip(self.slots, slots, strict=True):
            variable.assign(value)
        if self.statistics is not None:
            self.statistics.assign(statistics)
        counts = self.counts.numpy()
        counts[OPTIMIZER_UPDATES] = state.optimizer_updates
        self.counts.assign(counts)

    def fence(self, generation: Any) -> Any:
        """Take only updates of `generation`, int64, from now on.

        Returns it once an update under way is finished.
        """
        with tf.device(self.device):
            raised = tf.identity(generation)
            lock = self.locked([raised])
            with tf.control_dependencies([lock]):
                counts = tf.tensor_scatter_nd_update(
                    self.counts.read_value(), [[GENERATION]], [raised]
                )
            with tf.control_dependencies([self.counts.assign(counts, read_value=False)]):
                return self.released(lock, tf.identity(raised))

    def is_current(self, generation: Any) -> Any:
        """Whether an update of this generation, int64, may still change the shard.

        Ask it under the lock.
        """
        return tf.equal(self.counts.read_value()[GENERATION], generation)

    def read(self, *, exact: bool = False) -> Any:
        """Return a pull: parameters in the wire's codec, or `exact` ones; statistics; version."""
        with tf.device(self.device):
            version = tf.bitcast(self.counts.read_value()[APPLIED], tf.float32)
            with tf.control_dependencies([version]):
                pieces = [
                    self._pulled_in(exact).encode(
                        self.parameters.read_value(), tf.zeros([0, self.trained_size])
                    )[0]
                ]
                if self.statistics is not None:
                    pieces.append(self.statistics.read_value())
            return tf.concat([*pieces, version], 0)

    def unpack(self, pulled: Any, *, exact: bool = False) -> tuple[Any, Any, Any]:
        """(trained, statistics, version int64) of a tensor from `read`."""
        codec = self._pulled_in(exact)
        trained_words = codec.words(self.trained_size)
        trained = codec.decode(pulled[:trained_words], self.trained_size)
        return (
            trained,
            pulled[trained_words:-VERSION_WORDS],
            tf.bitcast(pulled[-VERSION_WORDS:], tf.int64),
        )

    def _pulled_in(self, exact: bool) -> Codec:
        if exact:
            return Fp32()
        return self.wire.pull

    def locked(self, waits_for: list[Any]) -> Any:
        """Take the shard's lock once `waits_for` is here.

        Nothing waits for the network while it is held.
        """
        with tf.control_dependencies(waits_for):
            return tf.raw_ops.MutexLock(mutex=self.lock)

    def released(self, lock: Any, answer: Any) -> Any:
        """`answer`, once it is there and the lock is released."""
        with tf.control_dependencies([answer]):
            release = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([release]):
            return tf.identity(answer)

    def applied(self, gradient: Any, rate: Any, statistics: Any, statistics_rate: Any) -> list[Any]:
        """Return ops that apply one update: optimizer, constraints, a step of the statistics."""
        updates = self.counts.read_value()[OPTIMIZER_UPDATES]
        ops = [self.optimizer.apply(self.parameters, self.slots, gradient, rate, updates)]
        if self._constraints:
            with tf.control_dependencies(ops):
                within = self._constraints.applied(self.parameters.read_value())
                ops.append(self.parameters.assign(within, read_value=False))
        if self.statistics is not None:
            change = statistics_rate * (statistics - self.statistics.read_value())
            if not self._averaged.all():
                change *= self._averaged
            ops.append(self.statistics.assign_add(change, read_value=False))
        return ops

    def count(self, applied: int, dropped: int) -> Any:
        """The op that counts an update as applied, or a push as dropped."""
        return self.counts.assign_add(
            tf.constant([applied, dropped, applied, 0], tf.int64), read_value=False
        )

    def dropped(self) -> Any:
        """int64 0, once a push is counted as dropped."""
        with tf.control_dependencies([self.count(0, 1)]):
            return tf.constant(0, tf.int64)


SomeShard = TypeVar("SomeShard", bound=ShardOnServer)


class PlacedVector(Generic[SomeShard]):
    """The whole vector over all its shards, in order: reading, resetting, counting."""

    reaching: Callable[[], AbstractContextManager[None]] = staticmethod(reaching_servers)
    """The context for calls to the processes that hold the shards."""

    def __init__(
        self,
        layout: Layout,
        state: VectorState,
        optimizer: Optimizer,
        places: Sequence[str],
        wire: Wire,
        make: Callable[[Shard, Layout, VectorState, Optimizer, str, Wire], SomeShard],
    ) -> None:
        """Place `state`, one shard that `make` makes on each of `places`."""
        self.layout = layout
        self._start = state.next_id
        self.generation = 0
        """Number of the last `fence`: updates of items made before do not count."""
        with self.reaching():
            self.shards = tuple(
                make(shard, layout, state, optimizer, place, wire)
                for shard, place in zip(layout.shards(len(places)), places, strict=True)
            )
            # Traced now: no function may be traced while workers are in the cluster.
            self._fences = [
                trace(shard.fence, tf.TensorSpec([], tf.int64)) for shard in self.shards
            ]

    def fence(self) -> None:
        """Keep out every update whose item was made before, however late it comes.

        What is read then stays.
        """
        self.generation += 1
        with self.reaching():
            for shard, fence in zip(self.shards, self._fences, strict=True):
                # The whole call runs there: a server fetches nothing from the coordinator.
                with tf.device(shard.device):
                    fence.answer(np.int64(self.generation))

    def pull(self, *, exact: bool = False) -> tuple[Any, Any, Any]:
        """Return trained parameters, statistics and versions, in a graph.

        They are float32 [trained_size], [statistics_size] and int64 [shards].

        The parameters are in the wire's codec, or exact.
        """
        pulled = [tf.identity(shard.read(exact=exact)) for shard in self.shards]
        return self._joined(pulled, exact=exact)

    def _joined(self, pulled: Sequence[Any], *, exact: bool = False) -> tuple[Any, Any, Any]:
        unpacked = [
            shard.unpack(tensor, exact=exact)
            for shard, tensor in zip(self.shards, pulled, strict=True)
        ]
        trained, statistics, versions = zip(*unpacked, strict=True)
        return tf.concat(trained, 0), tf.concat(statistics, 0), tf.stack(versions)

    def reset(self, vector: Vector) -> None:
        """Start again from `vector`, with fresh optimizer slots, behind a fence.

        Update ids continue.
        """
        self.fence()
        with self.reaching():
            for shard in self.shards:
                shard.reset(self.layout, VectorState(vector))

    def read(self) -> Vector:
        """The present vector, in layout order. Call it while no worker pushes."""
        with self.reaching():
            trained = [shard.parameters.numpy() for shard in self.shards]
            statistics = [
                shard.statistics.numpy() for shard in self.shards if shard.statistics is not None
            ]
        return np.concatenate([*trained, *statistics]).astype("<f4", copy=False)

    def state(self) -> VectorState:
        """The whole state, to resume from. Call it while no worker pushes."""
        vector = self.read()
        with self.reaching():
            counts = self._counts()
            names = self.shards[0].optimizer.slot_names
            slots = {
                name: np.concatenate([shard.slots[place].numpy() for shard in self.shards])
                for place, name in enumerate(names)
            }
        if len({(int(count[APPLIED]), int(count[OPTIMIZER_UPDATES])) for count in counts}) > 1:
            raise RuntimeError(
                "the shards are not at one cut: they have applied"
                f" {[int(c[APPLIED]) for c in counts]}"
            )
        return VectorState(
            vector, slots, int(counts[0][OPTIMIZER_UPDATES]), int(counts[0][APPLIED])
        )

    def has_applied_all_below(self, next_id: int) -> bool:
        """Whether every shard has applied `next_id` updates. Call it behind a fence."""
        with self.reaching():
            return all(int(count[APPLIED]) == next_id for count in self._counts())

    def totals(self) -> Totals:
        """The updates that these shards have applied and dropped."""
        with self.reaching():
            counts = self._counts()
        applied = min(int(count[APPLIED]) for count in counts) - self._start
        return Totals(applied, max(int(count[DROPPED]) for count in counts))

    def _counts(self) -> list[Any]:
        return [shard.counts.numpy() for shard in self.shards]
