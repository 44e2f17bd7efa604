"""How much the shared folder has to take, and that a survey of all nodes asks its server for it."""

from dataclasses import replace
from pathlib import Path

from deploy.cluster.places import ENVIRONMENTS, shared_folders
from deploy.converge.change import PublishedFile
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import MountFact
from deploy.converge.publication import MEGABYTE, WHEELHOUSE_BYTES, Publication, room_needed
from deploy.converge.survey import Survey
from tests.deploy.converge.pi import ENVIRONMENT, Cluster, release, thesis, untouched_cluster

INVENTORY = thesis()
FOLDERS = shared_folders(INVENTORY)
OTHER = "f" * 16


def published(kind: str, key: str, megabytes: int) -> Publication:
    return Publication(kind, key, (PublishedFile("a", Path("a"), "0" * 64, megabytes * MEGABYTE),))


def test_what_is_not_downloaded_yet_is_estimated() -> None:
    assert room_needed((), {ENVIRONMENT}, (), FOLDERS) == WHEELHOUSE_BYTES
    assert room_needed((), {ENVIRONMENT, OTHER}, (), FOLDERS) == 2 * WHEELHOUSE_BYTES
    assert room_needed((published("wheels", ENVIRONMENT, 350),), {ENVIRONMENT}, (), FOLDERS) == 350 * MEGABYTE
    assert room_needed((published("prepared", OTHER, 48),), (), (), FOLDERS) == 48 * MEGABYTE


def test_what_is_there_is_not_needed_again() -> None:
    there = (FOLDERS.published("wheels", ENVIRONMENT), FOLDERS.published("prepared", OTHER))
    data = published("prepared", OTHER, 48)
    assert room_needed((data,), {ENVIRONMENT}, there, FOLDERS) == 0
    # Another wheelhouse shares most of its files with that one.
    assert room_needed((data, published("wheels", OTHER, 350)), {OTHER}, there, FOLDERS) == 0


def problems(cluster: Cluster) -> dict[str, str]:
    """By node, as `check` finds them."""
    found = Machines(INVENTORY, release()).findings(Survey(cluster, {}))
    assert list(dict.fromkeys(one.node for one in found)) == [node.name for node in INVENTORY.nodes]
    return {one.node or "": one.line for one in found if one.level == "problem"}


def test_a_check_holds_the_server_s_disk_against_what_the_others_will_install() -> None:
    cluster = untouched_cluster(INVENTORY)
    assert problems(cluster) == {}
    ssd = {**cluster["rpi11"].mounts, "/srv": MountFact("/dev/sda1", "ext4", "8:1")}
    free = {**cluster["rpi11"].disk_free_bytes, "/srv/pscluster": 300 * MEGABYTE}
    cluster["rpi11"] = replace(cluster["rpi11"], mounts=ssd, disk_free_bytes=free)
    assert list(problems(cluster)) == ["rpi11"]
    assert "300 MB are free below /srv/pscluster, 400 MB are needed" in problems(cluster)["rpi11"]

    complete = {name: replace(facts, environments=(ENVIRONMENT,)) for name, facts in cluster.items()}
    assert problems(complete) == {}
    one_lacks_it = complete | {"rpi16": cluster["rpi16"]}
    assert list(problems(one_lacks_it)) == ["rpi11"]
    unfit = complete | {"rpi16": replace(cluster["rpi16"], disk_free_bytes={ENVIRONMENTS: 0})}
    assert list(problems(unfit)) == ["rpi16"]  # it will install nothing
