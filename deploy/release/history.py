"""The releases on a node: the target of a rollback, and what a node no longer needs. Pure."""

from dataclasses import dataclass

from core.ground.errors import ClusterError

KEPT = 3
"""Releases to keep, the current one included."""


@dataclass(frozen=True)
class Release:
    """One release on a node, by key, with its environment.

    `current_since` is Unix time by the node's own clock.
    """

    key: str
    environment: str
    unpacked: int
    current_since: int | None


@dataclass(frozen=True)
class Installed:
    """The releases and environments on a node.

    The `releases` that were current come first, the latest of them first.
    """

    current: str | None
    releases: tuple[Release, ...]
    environments: frozenset[str]


@dataclass(frozen=True)
class Unneeded:
    """Keys of what may be removed."""

    releases: tuple[str, ...]
    environments: tuple[str, ...]


class ListingError(ClusterError):
    """A listing holds a foreign line, so nothing may be concluded from it."""


def read(listing: str) -> Installed:
    """The output of `list_releases`. Raises ListingError for a foreign line."""
    current = None
    entries: list[tuple[str, str, int]] = []
    environments = set()
    made_current: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(listing.splitlines()):
        match line.split():
            case ["current", key]:
                current = key
            case ["environment", key]:
                environments.add(key)
            case ["release", key, environment, unpacked] if unpacked.isdecimal():
                entries.append((key, environment, int(unpacked)))
            case ["history", seconds, key] if seconds.isdecimal():
                # The line's place counts, not the time: a Pi without a battery may have started in
                # 1970.
                made_current[key] = (number, int(seconds))
            case ["unchanged:", *_]:
                pass
            case _:
                raise ListingError(
                    f"expected a line of a listing of releases, got {line!r}: does a start file of"
                    " the account, such as ~/.bashrc, print it? Let it print in interactive shells"
                    " only"
                )
    entries.sort(
        key=lambda entry: (entry[0] == current, made_current.get(entry[0], (-1,))[0], entry[2]),
        reverse=True,
    )
    releases = tuple(
        Release(key, environment, unpacked, made_current[key][1] if key in made_current else None)
        for key, environment, unpacked in entries
    )
    return Installed(current, releases, frozenset(environments))


def previous(installed: Installed) -> Release | None:
    """The latest release that was current before the current one and is still complete, or None."""
    for release in installed.releases:
        was_current = release.key != installed.current and release.current_since is not None
        if was_current and release.environment in installed.environments:
            return release
    return None


def unneeded(installed: Installed, *, retained_releases: int = KEPT) -> Unneeded:
    """Return releases beyond the newest `retained_releases`, and environments of no other.

    The current release is never among them.
    """
    stay = installed.releases[:retained_releases]
    surplus = tuple(release.key for release in installed.releases[retained_releases:])
    needed = {release.environment for release in stay}
    return Unneeded(surplus, tuple(sorted(installed.environments - needed)))
