"""How much the shared folder has to take, and that a survey of all nodes asks its server for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster.places import ENVIRONMENTS, shared_folders
from deploy.converge import publication
from deploy.converge.apply import Survey
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import MEGABYTE, MountFact
from deploy.converge.publication import WHEELHOUSE_BYTES, DataHere, Publication, room_needed
from deploy.converge.subject import PublishedFile
from tests.deploy.converge.pi import Cluster, release, thesis, untouched_cluster
from tests.deploy.converge.played_machine import ENVIRONMENT
from tests.deploy.converge.tables import rows

INVENTORY = thesis()
FOLDERS = shared_folders(INVENTORY)


def published(kind: str, key: str, megabytes: int) -> Publication:
    return Publication(kind, key, (PublishedFile("a", Path("a"), "0" * 64, megabytes * MEGABYTE),))


@rows("rooms")
def test_what_is_there_is_not_needed_again(row: Any) -> None:
    publications = [published(*one) for one in row.get("publications", ())]
    there = [FOLDERS.published(*one) for one in row.get("there", ())]
    needed = row.get("wheelhouses", 0) * WHEELHOUSE_BYTES + row.get("megabytes", 0) * MEGABYTE
    assert room_needed(publications, {*row["environments"]}, there, FOLDERS) == needed


def test_recordings_that_no_job_here_names_are_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publication, "data_of", lambda *_: pytest.fail("they were looked for"))
    DataHere(INVENTORY).refuse_missing()


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
