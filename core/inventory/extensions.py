"""What each mode, codec, optimizer and model states about itself.

Registries find them.

The schema, the flags, the memory estimate, the tables of the documentation and the messages read
these facts; no other module compares a name with "sync" or "topk". Every class states every fact
itself: an inherited one does not count. A fact that depends on the options is a class method.
docs/how-to-add/ has an example of each kind.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from core.ground.registry import Registry

if TYPE_CHECKING:
    from core.inventory.fields import Choice, OptimizerOptions, Section


class ModeFacts:
    """How workers agree: a policy of `core.consistency`.

    It runs on the functions of `cluster.jobs.modes`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """Completes "`name` ..." in the reference: what the mode does with updates."""
    update: ClassVar[str]
    """Cell of the documentation's table: what one update is."""
    waits: ClassVar[str]
    """Cell of the documentation's table: who waits for whom."""
    costs: ClassVar[str]
    """Cell of the documentation's table: what the mode costs."""
    parameters: ClassVar[Literal["servers", "workers", "coordinator"]]
    """Place of the parameters. A mode with all of them in the coordinator needs no roles."""
    in_steps: ClassVar[bool]
    """True: an update is a step, the same sum of slots on any workers. False: it is one
    worker's push."""
    repeatable: ClassVar[bool]
    """`--chaos` may drop, double or delay a call; False for calls that must never run twice."""
    mechanism: ClassVar[str]
    """`module:Class` of the traced functions and shards that carry the mode out."""
    Options: ClassVar[type[Section] | None]
    """The section `jobs.train.<name>`; None without options."""

    @classmethod
    def policy(cls, options: Any, slots: int, speeds: Any) -> Any:
        """The mode's policy over `slots` slots an update."""
        return cls(slots, speeds, **({} if options is None else options.model_dump()))  # type: ignore[call-arg]

    @classmethod
    def same_bits(cls, options: Any) -> bool:
        """Whether every run ends with the same bits on nodes of one kind."""
        return cls.in_steps

    @classmethod
    def batches(cls, options: Any) -> int:
        """Batches that a worker trains on between pull and push."""
        return 1

    @classmethod
    def server_vectors(cls, slots: int) -> int:
        """Return how many vectors of the model's size a parameter server keeps.

        Parameters and optimizer slots are not counted.
        """
        return 0

    @classmethod
    def several_a_call(cls, options: Any) -> bool:
        """Whether a call may do several updates, one after the other."""
        return False

    @classmethod
    def spans_devices(cls) -> bool:
        """Whether one process computes on all devices of its machine."""
        return False

    @classmethod
    def needs_roles(cls) -> bool:
        """Whether training runs on the cluster's roles."""
        return cls.parameters != "coordinator"

    @classmethod
    def shares_batches(cls) -> bool:
        """Whether several workers compute one batch together."""
        return cls.in_steps and cls.needs_roles()


class CodecFacts:
    """What values look like on the wire.

    The class in `core.engine.codecs` encodes and decodes them.
    """

    name: ClassVar[str]
    travels: ClassVar[str]
    """Cell of the documentation's table: what travels, in bytes a value."""
    keeps_back: ClassVar[bool]
    """Whether a worker keeps values for later pushes: then results depend on which worker computed
    what."""
    Options: ClassVar[type[Choice]]


class OptimizerFacts:
    """How a gradient changes a shard; the class in `ps_node.optimizers` applies it."""

    name: ClassVar[str]
    Options: ClassVar[type[OptimizerOptions]]


class ModelFacts:
    """A network; the class in `core.models` builds it."""

    name: ClassVar[str]
    Options: ClassVar[type[Choice]]

    @classmethod
    @abstractmethod
    def widest_layer(cls, options: Any) -> int:
        """Units of the widest layer, both directions together: what the memory estimate goes by."""

    @classmethod
    def remembers_statistics(cls) -> bool:
        """Say whether a process keeps what it measures of windows (kernels/native/recall.cc)."""
        return False


MODES = Registry("mode", "core.consistency", ModeFacts)
CODECS = Registry("codec", "core.engine.codecs", CodecFacts)
OPTIMIZERS = Registry("optimizer", "ps_node.optimizers", OptimizerFacts)
MODELS: Registry[ModelFacts] = Registry("model", "core.models", ModelFacts)  # type: ignore[type-abstract]
