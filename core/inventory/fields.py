"""The building blocks of the schema: the base of every section, shared types, and extensions.

Registries find the modes, codecs, optimizers and models, and each class states facts about itself:
the schema, the flags, the memory estimate, the tables of the documentation and the messages read
these; no other module compares a name with "sync" or "topk". Every class states every fact itself:
an inherited one does not count. A fact that depends on the options is a class method.
docs/how-to-add/ has an example of each kind.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import Field, StringConstraints

from core.documents.section import Section, Text, invalid
from core.ground.registry import Registry

__all__ = [
    "AbsolutePath",
    "Choice",
    "Fraction",
    "Host",
    "Name",
    "OptimizerOptions",
    "Port",
    "PositiveFloat",
    "RecurrentChoice",
    "Section",
    "Seed",
    "SshPort",
    "Text",
    "User",
    "are_distinct",
    "invalid",
]


class Choice(Section):
    """A section whose key `name` says which extension it configures, such as a model or a codec."""

    name: str = ""


class RecurrentChoice(Choice):
    """The options of a model with LSTM layers.

    It reads its windows through `core.models.layers`.
    """

    kernel: Literal["auto", "fused", "xla"] = Field(
        "auto",
        description=(
            "what computes LSTM layers: `fused` TensorFlow's own operations, `xla` plain ones,"
            " compiled with all of a slot by XLA; `auto` is `xla` on a TPU, else `fused`"
        ),
    )
    instance_norm: Literal["none", "replace", "append"] = Field(
        "none",
        description=(
            "what the layers read: `none` windows as they are, `replace` each channel less the"
            " window's own mean and over its own deviation, `append` both beside each other"
        ),
    )


def are_distinct(numbers: object, least: int, most: int) -> TypeGuard[tuple[int, ...]]:
    """Return whether this is a list of whole numbers within the bounds, at least one, each once."""
    return (
        isinstance(numbers, tuple)
        and all(type(number) is int and least <= number <= most for number in numbers)
        and 0 < len(set(numbers)) == len(numbers)
    )


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$")]
"""Letters, digits, `-` and `_`: it becomes part of file names, unit names and host names."""

AbsolutePath = Annotated[
    str, StringConstraints(max_length=4096, pattern=r"^(/[\w+@~-][\w.+@~-]*)+$")
]
"""A folder on the nodes, never the root. It is written into /etc/exports, /etc/fstab, units and
shell scripts, each with characters of its own that would mean something."""

Port = Annotated[int, Field(ge=1024, le=65535)]
"""A TCP port a process without root rights may take."""

User = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")]
SshPort = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?$")
]
"""An IPv4 address or a host name, as a word of a command line."""

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A seed of a random stream; non-negative int32, what TensorFlow's stateless operations take."""

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]

PositiveFloat = Annotated[float, Field(gt=0.0)]


class OptimizerOptions(Choice):
    """What the options of every optimizer begin with."""

    learning_rate: PositiveFloat = Field(
        0.001, description="step size; with one_cycle the highest one"
    )


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


MODES = Registry("mode", "core.consistency", ModeFacts)
CODECS = Registry("codec", "core.engine.codecs", CodecFacts)
OPTIMIZERS = Registry("optimizer", "ps_node.optimizers", OptimizerFacts)
MODELS: Registry[ModelFacts] = Registry("model", "core.models", ModelFacts)  # type: ignore[type-abstract]
