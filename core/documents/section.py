"""A section of a document: the base of every schema, and the types that schemas share."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError


def invalid(problem: str, remedy: str) -> PydanticCustomError:
    """The error that a validator raises for a value that its type alone does not exclude."""
    return PydanticCustomError("invalid", problem, {"remedy": remedy})


class Section(BaseModel):
    """A mapping of the inventory.

    It has no other keys than its fields, converts nothing, and never changes once read.
    """

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
        """Take null for the defaults.

        A section whose keys are all commented out reads as null in YAML.
        """
        if value is None:
            return {}
        return value


Text = Annotated[
    str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")
]
"""Something that goes into a path or a command line: no control characters."""


def _listed(value: object) -> object:
    """One name, or several."""
    if isinstance(value, str):
        return (value,)
    return value


Names = Annotated[tuple[Text, ...], BeforeValidator(_listed)]
