"""What a person asks for with `fab job run`, as it travels to the process that runs the program.

Pure.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from core.ground.errors import UsageError
from core.ground.files import parsed_json

On = Literal["chief", "workers"]
PLACES: tuple[On, ...] = get_args(On)
"""The places of a program: once on the coordinator's node, or once on each worker's node."""

MOST_RESTARTS = 100
MOST_ARGUMENT_BYTES = 128 << 10
"""The limit of all arguments together: Linux takes no longer single one."""


@dataclass(frozen=True)
class ProgramRequest:
    """One program to run: its file, arguments, place, and how often a loss may restart it.

    `requirements` is the operator's file of further packages, `python` the interpreter that has
    them; empty for the cluster's own environment. `bounded`: what a person is shown goes into a
    file of a node, which must not grow without end.
    """

    program: str
    arguments: tuple[str, ...] = ()
    on: On = "chief"
    restarts: int = 5
    requirements: str = ""
    python: str = ""
    bounded: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.program).name

    def to_text(self) -> str:
        """Return one line of JSON in ASCII."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "ProgramRequest":
        """The inverse of `to_text`. Raises UsageError for anything else."""
        try:
            document: Any = parsed_json(text)
            if not isinstance(document, dict) or not all(
                isinstance(argument, str) for argument in document["arguments"]
            ):
                raise ValueError("expected an object with a list of arguments")
            request = cls(**{**document, "arguments": tuple(document["arguments"])})
        except (ValueError, TypeError, KeyError) as problem:
            raise UsageError(f"--wish: expected what `fab job run` writes, got {problem}") from None
        return request.checked()

    def checked(self) -> "ProgramRequest":
        """Itself. Raises UsageError where a value has another type, or is out of its bounds."""
        if self.on not in PLACES:
            raise UsageError(f"--on: expected {' or '.join(PLACES)}, got {str(self.on)!r:.80}")
        if type(self.restarts) is not int or not 0 <= self.restarts <= MOST_RESTARTS:
            raise UsageError(
                f"--restarts: expected a whole number from 0 to {MOST_RESTARTS}, got"
                f" {self.restarts!r:.80}"
            )
        texts: tuple[Any, ...] = (self.program, self.python, self.requirements, *self.arguments)
        if not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise UsageError("--: expected arguments of text without NUL bytes")
        size = sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in self.arguments)
        if size > MOST_ARGUMENT_BYTES:
            raise UsageError(
                f"--: expected at most {MOST_ARGUMENT_BYTES} bytes of arguments, got {size}: use a"
                " file"
            )
        return self


def program_file(path: str) -> Path:
    """The program's absolute path. Raises UsageError unless it is a file that can be read."""
    file = Path(path)
    try:
        is_there = file.exists()
    except OSError as problem:
        raise UsageError(f"{path:.200}: the program cannot be read: {problem.strerror}") from None
    if not is_there:
        raise UsageError(f"{path:.200}: expected a Python program, found no such file")
    if not file.is_file():
        raise UsageError(
            f"{path}: expected a Python program, found no file but a folder or device; name the .py"
            " file"
        )
    try:
        with file.open("rb"):
            return file.absolute()
    except OSError as problem:
        raise UsageError(f"{path}: the program cannot be read: {problem.strerror}") from None
