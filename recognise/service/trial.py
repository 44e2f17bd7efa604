"""Whether the version that took over last has lived long enough to be trusted.

It is kept in a file of the service's own state, because a version may end the service with it.
"""

import json
import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from core.atomic_write import atomic_write
from core.errors import ClusterError, reason_of
from core.exported.files import read_bytes
from recognise.service import state

log = logging.getLogger(__name__)

MOST_BEGINNINGS = 2
_LARGEST_BYTES = 4096


class _Mark(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    schema_: int = Field(1, alias="schema", ge=1, le=1)
    version: PositiveInt
    proven: bool
    begun: int = Field(ge=0, le=1000)


class Trial:
    """How often the latest version began and did not live for a minute."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: _Mark | None = self._read()

    def is_lost(self, number: int) -> bool:
        """Return whether this version is to be taken back."""
        mark = self._of(number)
        return not mark.proven and mark.begun >= MOST_BEGINNINGS

    def is_proven(self, number: int) -> bool:
        """Return whether this version has lived for a minute once."""
        return self._of(number).proven

    def begin(self, number: int) -> None:
        """Count one more beginning of a version that is not proven."""
        mark = self._of(number)
        if not mark.proven:
            self._write(number, proven=False, begun=mark.begun + 1)

    def end(self, number: int) -> None:
        """Forget the last beginning: the service ends as it was asked to."""
        mark = self._of(number)
        if not mark.proven and mark.begun:
            self._write(number, proven=False, begun=mark.begun - 1)

    def prove(self, number: int) -> None:
        """Trust this version from now on."""
        self._write(number, proven=True, begun=0)

    def _of(self, number: int) -> _Mark:
        if self._mark is not None and self._mark.version == number:
            return self._mark
        return _Mark(version=number, proven=False, begun=0)

    def _read(self) -> _Mark | None:
        try:
            return _Mark.model_validate(json.loads(read_bytes(self._path, _LARGEST_BYTES)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, ValidationError) as problem:
            log.warning("%s: not read (%s): the version begins its trial", self._path, problem)
            return None

    def _write(self, number: int, *, proven: bool, begun: int) -> None:
        self._mark = _Mark(version=number, proven=proven, begun=begun)
        content = {"schema": 1, "version": number, "proven": proven, "begun": begun}
        try:
            atomic_write(self._path, json.dumps(content).encode() + b"\n", state.OTHERWISE)
        except (OSError, ClusterError) as problem:
            log.warning("%s: cannot be kept (%s)", self._path, reason_of(problem))
