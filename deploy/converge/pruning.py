"""Releases and environments that nobody needs any more, removed after a deployment that worked."""

from collections.abc import Collection, Sequence

from cluster.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import SERVICE_USER, SharedFolders
from deploy.common.command_line import shell
from deploy.release.history import ListingError, read, unneeded
from deploy.release.publish_scripts import prune_folders
from deploy.release.release_scripts import list_releases, remove
from deploy.release.script import RefusedError, outcome

_LIST_SECONDS = 60.0
_REMOVE_SECONDS = 600.0
_JOB_RUNS = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", "pscluster-job@*")


def prune(fleet: Fleet, names: Sequence[str], kept: int) -> dict[str, str | ClusterError]:
    """Keep the last `kept` releases on each node, and the environments they need; what was removed, by node.

    A node on which a job runs is left alone: the job's process may be of an old release.
    """

    def one(node: Connector) -> str:
        if "pscluster-job@" in node.run(_JOB_RUNS).text:
            return ""
        listing = node.run(shell(list_releases()), root=True, deadline_seconds=_LIST_SECONDS)
        try:
            outcome(listing.return_code, listing.text, listing.stderr)
            gone = unneeded(read(listing.text), kept=kept)
            if not gone.releases and not gone.environments:
                return ""
            done = node.run(
                shell(remove(gone.releases, gone.environments)), root=True, deadline_seconds=_REMOVE_SECONDS
            )
            return outcome(done.return_code, done.text, done.stderr).line
        except (RefusedError, ListingError, ValueError) as error:  # a key that is none
            raise ClusterError(f"{node.name}: {error}") from error

    return fleet.each(one, names)


def prune_wheels(node: Connector, folders: SharedFolders, needed: Collection[str]) -> None:
    """Of the published wheelhouses, keep those of the environments that some node has or is to have.

    Raises ClusterError.
    """
    user = None if folders.server is not None else SERVICE_USER
    try:
        script = prune_folders(f"{folders.publish_folder}/wheels", needed)
    except ValueError as error:
        raise ClusterError(f"{node.name}: of the environments that nodes named one is none: {error}") from error
    done = node.run(shell(script), root=user is None, user=user, deadline_seconds=_REMOVE_SECONDS)
    outcome(done.return_code, done.text, done.stderr)
