"""The building blocks of the schema: the base of every section, and the types several sections share."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError


def invalid(problem: str, remedy: str) -> PydanticCustomError:
    """The error that a validator raises for a value that its type alone does not exclude."""
    return PydanticCustomError("invalid", problem, {"remedy": remedy})


class Section(BaseModel):
    """A mapping of the inventory: no other keys than its fields, no conversions, never changed once read."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, value: object) -> object:
        """A section whose keys are all commented out reads as null in YAML: it means its defaults."""
        return {} if value is None else value


class Choice(Section):
    """A section whose key `name` says which extension it configures, such as a model or a codec."""

    name: str = ""


class RecurrentChoice(Choice):
    """The options of a model with LSTM layers, which reads its windows through `cluster.models.instance_norm`."""

    kernel: Literal["auto", "fused", "xla"] = Field(
        "auto",
        description="what computes LSTM layers: `fused` TensorFlow's own operations, `xla` plain ones, compiled with "
        "all of a micro-batch by XLA; `auto` is `xla` on a TPU, else `fused`",
    )
    instance_norm: Literal["none", "replace", "append"] = Field(
        "none",
        description="what the layers read: `none` windows as they are, `replace` each channel less the window's own "
        "mean and over its own deviation, `append` both beside each other",
    )


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$")]
"""Letters, digits, `-` and `_`: it becomes part of file names, unit names and host names."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Something that goes into a path or a command line: no control characters."""

AbsolutePath = Annotated[str, StringConstraints(max_length=4096, pattern=r"^(/[\w+@~-][\w.+@~-]*)+$")]
"""A folder on the nodes, never the root. It is written into /etc/exports, /etc/fstab, units and shell scripts, each
with characters of its own that would mean something."""

Port = Annotated[int, Field(ge=1024, le=65535)]
"""A TCP port a process without root rights may take."""

User = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")]
SshPort = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?$")]
"""An IPv4 address or a host name, as a word of a command line."""

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A seed of a random stream; non-negative int32, what TensorFlow's stateless operations take."""

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]

PositiveFloat = Annotated[float, Field(gt=0.0)]


class OptimizerOptions(Choice):
    """What the options of every optimizer begin with."""

    learning_rate: PositiveFloat = Field(0.001, description="step size; with one_cycle the highest one")
