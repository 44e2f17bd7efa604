"""How recordings that a person named are written: a known kind, one known format, or none yet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from core.data.described.fitting import fits
from core.data.described.members import MOST_MEMBERS, Member, members_of
from core.data.show.draft import Draft, draft_of
from core.data.source import DESCRIBED, PROJECT_ROOT, SYNTHETIC, Source, find_source
from core.ground.errors import DataError
from core.ground.files import atomic_write, user_cache


@dataclass(frozen=True)
class FoundRecordings:
    """What to show: recordings of a kind, or a draft for those that no reader knows.

    format: the name or file of the format; None where the kind needs none. is_labelled: whether
    the format's paths say who, and what was done.
    """

    source: Source | None
    format: str | None = None
    is_labelled: bool = True
    draft: Draft | None = None
    members: Sequence[Member] | None = None


def choose(
    source_argument: str | None, options: Mapping[str, Any], *, is_draft_asked: bool
) -> FoundRecordings:
    """Find what recordings are. Raises DataError, also where a person has to choose a format."""
    named = options.get("format")
    problem: DataError | None = None
    try:
        source: Source | None = find_source(
            source_argument, os.environ, PROJECT_ROOT, user_cache(), named
        )
    except DataError as refused:
        source = None
        problem = refused
    path = Path(os.path.expanduser(source_argument or ""))
    is_made_up = source_argument in (None, "", SYNTHETIC)
    if is_made_up or not path.exists() or (source is not None and not is_draft_asked):
        if problem is not None:
            raise problem
        return FoundRecordings(source, named)
    members = _members(path)
    if not is_draft_asked:
        formats = fits(path, members)
        if len(formats.by_name) == 1:
            name = formats.by_name[0]
            why = f"{path} (fits the format {name})"
            return FoundRecordings(
                Source(DESCRIBED, path, why), name, formats.is_labelled, members=members
            )
        _refuse_several(path, formats.by_name, formats.by_shape)
    draft = draft_of(path.name, members)
    if draft is not None:
        return FoundRecordings(None, draft=draft)
    if problem is not None:
        raise problem
    return FoundRecordings(source)


def _members(path: Path) -> Sequence[Member]:
    """Return the files of a source. Raises DataError where there are too many to look at."""
    names = (name for _, _, files in os.walk(path) for name in files)
    few = sum(1 for _ in islice(names, MOST_MEMBERS + 1)) <= MOST_MEMBERS
    file_members = (member for member in members_of(path) if member.path.is_file()) if few else ()
    members = list(islice(file_members, MOST_MEMBERS + 1))
    if not few or len(members) > MOST_MEMBERS:
        raise DataError(f"{path}: more than {MOST_MEMBERS} files; name a smaller folder")
    return members


def _refuse_several(path: Path, by_name: Sequence[str], by_shape: Sequence[str]) -> None:
    if by_name:
        raise DataError(
            f"{path}: fits the formats {' and '.join(by_name)}; choose one with --format, or write"
            " a description with --draft FILE"
        )
    if by_shape:
        raise DataError(
            f"{path}: has as many columns as {' or '.join(by_shape)}, but no names that say it;"
            f" give --format {by_shape[0]} if it is that, else write a description with --draft"
            " FILE"
        )


def write_draft(draft: Draft, path: Path, *, is_forced: bool) -> None:
    """Write a draft. Raises DataError where the file is there already, and ClusterError."""
    if path.exists() and not is_forced:
        raise DataError(
            f"{path}: is there already; use it with --format, name another file with --draft, or"
            " replace it with --force"
        )
    atomic_write(path, draft.text.encode(), "give another --draft")
