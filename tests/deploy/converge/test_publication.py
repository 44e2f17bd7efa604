"""How much the shared folder has to take, and that a survey of all nodes asks its server for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.cluster.places import ENVIRONMENTS, shared_folders
from deploy.converge.change import PublishedFile
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import MountFact
from deploy.converge.memory_estimate import MEGABYTE
from deploy.converge.publication import WHEELHOUSE_BYTES, Publication, room_needed
from deploy.converge.survey import Survey
from tests.deploy.converge.pi import Cluster, release, thesis, untouched_cluster
from tests.deploy.converge.played_machine import ENVIRONMENT

INVENTORY = thesis()
FOLDERS = shared_folders(INVENTORY)
OTHER = "f" * 16
THERE = (FOLDERS.published("wheels", ENVIRONMENT), FOLDERS.published("prepared", OTHER))


def published(kind: str, key: str, megabytes: int) -> Publication:
    return Publication(kind, key, (PublishedFile("a", Path("a"), "0" * 64, megabytes * MEGABYTE),))


DATA = published("prepared", OTHER, 48)


@pytest.mark.parametrize(
    ("publications", "environments", "there", "needed"),
    [
        # What is not downloaded yet is estimated.
        ((), {ENVIRONMENT}, (), WHEELHOUSE_BYTES),
        ((), {ENVIRONMENT, OTHER}, (), 2 * WHEELHOUSE_BYTES),
        ((published("wheels", ENVIRONMENT, 350),), {ENVIRONMENT}, (), 350 * MEGABYTE),
        ((DATA,), set(), (), 48 * MEGABYTE),
        ((DATA,), {ENVIRONMENT}, THERE, 0),
        # Another wheelhouse shares most of its files with that one.
        ((DATA, published("wheels", OTHER, 350)), {OTHER}, THERE, 0),
    ],
)
def test_what_is_there_is_not_needed_again(
    publications: tuple[Publication, ...],
    environments: set[str],
    there: tuple[str, ...],
    needed: int,
) -> None:
    assert room_needed(publications, environments, there, FOLDERS) == needed


def problems(cluster: Cluster) -> dict[str, str]:
    """By node, as `check` finds them."""
    found = Machines(INVENTORY, release()).findings(Survey(cluster, {}))
    assert list(dict.fromkeys(one.node for one in found)) == [node.name for node in INVENTORY.nodes]
    return {one.node or "": one.line for one in found if one.level == "problem"}


def test_a_check_holds_the_server_s_disk_against_what_the_others_will_install() -> None:
    cluster = untouched_cluster(INVENTORY)
    assert problems(cluster) == {}
    server = cluster["rpi11"]
    cluster["rpi11"] = replace(
        server,
        mounts={**server.mounts, "/srv": MountFact("/dev/sda1", "ext4", "8:1")},
        disk_free_bytes={**server.disk_free_bytes, "/srv/pscluster": 300 * MEGABYTE},
    )
    assert list(problems(cluster)) == ["rpi11"]
    assert "300 MB are free below /srv/pscluster, 400 MB are needed" in problems(cluster)["rpi11"]

    complete = {
        name: replace(facts, environments=(ENVIRONMENT,)) for name, facts in cluster.items()
    }
    assert problems(complete) == {}
    lacks_it = cluster["rpi16"]
    assert list(problems(complete | {"rpi16": lacks_it})) == ["rpi11"]
    unfit = replace(lacks_it, disk_free_bytes={ENVIRONMENTS: 0})
    assert list(problems(complete | {"rpi16": unfit})) == ["rpi16"]  # it will install nothing
