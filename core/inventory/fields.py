"""The building blocks of the schema: the base of every section, and types that several share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeGuard

from pydantic import BeforeValidator, Field, StringConstraints

from core.documents.section import Section, Text, invalid

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
    "word_or_number",
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
            "what the layers read: `none` windows as they are, `replace` each channel minus the"
            " window's mean, divided by its deviation, `append` both beside each other"
        ),
    )


def are_distinct(numbers: object, least: int, most: int) -> TypeGuard[tuple[int, ...]]:
    """Return whether this is a list of whole numbers within the bounds, at least one, each once."""
    return (
        isinstance(numbers, tuple)
        and all(type(number) is int and least <= number <= most for number in numbers)
        and 0 < len(set(numbers)) == len(numbers)
    )


def word_or_number(word: str, least: int, most: int, remedy: str) -> BeforeValidator:
    """Check a word, or a number within the bounds: one problem, not one for each type."""

    def checked(value: object) -> object:
        if value == word or (type(value) is int and least <= value <= most):
            return value
        raise invalid(f"expected `{word}` or a whole number from {least} to {most}", remedy)

    return BeforeValidator(checked)


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
    base_batch: int | None = Field(
        None,
        ge=1,
        le=65_536,
        description=(
            "the `batch_size` that `learning_rate` is for; another one multiplies it by their"
            " ratio ([arXiv 1706.02677](https://arxiv.org/abs/1706.02677)); null never does"
        ),
    )

    def rate_for(self, batch_size: int) -> float:
        """Return the learning rate of batches of this size."""
        if self.base_batch is None:
            return self.learning_rate
        return self.learning_rate * batch_size / self.base_batch
