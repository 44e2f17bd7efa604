"""The versions of one model on disk, and the one pointer to the version that is served.

    FOLDER/current.json   the history of what was served, the last one now; replaced as a whole
    FOLDER/versions/3/    a copy of an export

A promotion copies an export, verifies the copy, tries it, and then moves the pointer. So a reader
of the pointer never finds half a version, and an export that changes afterwards changes nothing
here.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from core.exported.description import NAME, Description, read_bytes, read_description
from core.exported.verified import refuse_unverified
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import atomic_stream, folder_beside, parsed_json, take_name
from core.ground.locks import locked
from recognise.service import state
from recognise.service.limits import Limits
from recognise.service.loading import compatible, tried

CURRENT = "current.json"
VERSIONS = "versions"
LOCK = "lock"
KEPT = 10
"""Versions that stay on disk; the oldest ones beyond go, that which is served never does."""
_LARGEST_POINTER = 65_536


class _Pointer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    schema_: int = Field(1, alias="schema", ge=1, le=1)
    history: tuple[PositiveInt, ...] = Field((), max_length=1000, strict=False)


@dataclass(frozen=True)
class Version:
    """One version: its number, its export, and whether it is served."""

    number: int
    folder: Path
    description: Description | None
    """The description, None where the files are not what `export.json` says: `problem` says why."""
    current: bool = False
    problem: str = ""


class Versions:
    """The versions of one model in `folder`, which belongs to one account."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        """`limits` are those of the service; a version is tried within them."""
        self.folder = folder
        self._limits = limits or Limits()

    def current(self) -> int | None:
        """Return the number of the version to serve, or None before the first promotion.

        Raises UsageError.
        """
        history = self._history()
        if history:
            return history[-1]
        return None

    def path(self, number: int) -> Path:
        """Return where a version lies."""
        return self.folder / VERSIONS / str(number)

    def listed(self) -> list[Version]:
        """Return every version by number, each compared with its hash."""
        current = self.current()
        return [self._version(number, number == current) for number in self._numbers()]

    def promote(self, export: Path) -> Version:
        """Make a version of an export and serve it from now on.

        The same export as the current one changes nothing.

        A current version that is damaged keeps no other one out.

        Raises UsageError for an export that is damaged, cannot be opened, was not found to answer
        as TensorFlow does, or answers to other inputs.
        """
        description = tried(export, self._limits)
        refuse_unverified(description, export)
        with self._locked():
            current = self._current_version()
            if current is not None and current.description is not None:
                if current.description == description:
                    return current
                compatible(current.description, description, export)
            number = max([*self._numbers(), *self._history()], default=0) + 1
            path = self.path(number)
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with folder_beside(path, 0o700) as partial:
                    self._copy(description, export, partial)
                    take_name(partial, path)
            except OSError as problem:
                raise ClusterError(
                    f"{path}: cannot be written ({reason_of(problem)}): free some space"
                ) from None
            self._point((*self._history(), number))
            self._prune()
        return Version(number, self.path(number), description, current=True)

    @staticmethod
    def _copy(description: Description, export: Path, folder: Path) -> None:
        for name in (NAME, description.file):
            content = read_bytes(export / name, max(description.bytes, _LARGEST_POINTER * 16))
            (folder / name).write_bytes(content)
        if read_description(folder) != description:
            raise UsageError(f"{export}: it changed while it was copied: promote it again")

    def rollback(self) -> Version:
        """Serve the version before the current one.

        Raises UsageError without one, or where its files are damaged.
        """
        nothing = UsageError(
            "there is no version before this one: `fab service list` shows what there is"
        )
        if not self.folder.is_dir():  # and it stays so
            raise nothing
        with self._locked():
            history = self._history()
            if len(history) < 2:
                raise nothing
            description = tried(self.path(history[-2]), self._limits)
            self._point(history[:-1])
        return Version(history[-2], self.path(history[-2]), description, current=True)

    def take_back(self, number: int) -> int | None:
        """Serve the version before `number` if that one is current; return the number before it.

        None: there is none. Raises UsageError and ClusterError.
        """
        with self._locked():
            history = self._history()
            if len(history) < 2 or history[-1] != number:
                return None
            self._point(history[:-1])
        return history[-2]

    def _current_version(self) -> Version | None:
        number = self.current()
        if number is None:
            return None
        return self._version(number, current=True)

    def _version(self, number: int, current: bool) -> Version:
        try:
            return Version(number, self.path(number), read_description(self.path(number)), current)
        except UsageError as problem:
            return Version(number, self.path(number), None, current, str(problem))

    def _numbers(self) -> list[int]:
        folder = self.folder / VERSIONS
        if not folder.is_dir():
            return []
        names = os.listdir(folder)
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def _history(self) -> tuple[int, ...]:
        path = self.folder / CURRENT
        try:
            return _Pointer.model_validate(parsed_json(read_bytes(path, _LARGEST_POINTER))).history
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, ValidationError) as problem:
            raise UsageError(
                f"{path}: expected the history of promotions, got {reason_of(problem)}: remove the"
                " file and promote"
            ) from None

    def _point(self, history: tuple[int, ...]) -> None:
        content = {"schema": 1, "history": history[-KEPT:]}
        with atomic_stream(self.folder / CURRENT, state.OTHERWISE) as stream:
            stream.write(json.dumps(content).encode() + b"\n")

    def _prune(self) -> None:
        history = self._history()
        for number in self._numbers()[:-KEPT]:
            if number not in history:
                shutil.rmtree(self.path(number), ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock: one promotion or rollback runs at a time.

        Raises ClusterError where the folder cannot be written.
        """
        with ExitStack() as until_the_end:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                until_the_end.enter_context(locked(self.folder / LOCK))
            except OSError as problem:
                raise ClusterError(
                    f"{self.folder}: cannot be written ({reason_of(problem)}): work in another"
                    " folder"
                ) from None
            yield
