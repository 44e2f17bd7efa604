"""What a node's owner has there, and what stands between two nodes, is named and left alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deploy.playing import eventually
from tests.lab.strangers import open_to_strangers
from tests.lab.two_nodes.place import HUB, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

OTHER = "rpi02"
ELSEWHERE = "192.168.1.117"
"""What Wi-Fi gives the node beside its cable."""
ROUTE = "ip route replace 192.168.1.0/24 dev eth0 src"
ONLY_SSH = """\
table inet owner {
    chain input {
        type filter hook input priority 0; policy accept;
        iif "lo" accept
        ct state established accept
        tcp dport != 22 drop
    }
}
"""
NEEDED = f"{OTHER} does not reach ps:0 at 192.168.1.16:2222, the shared folder at 192.168.1.16:2049"
REASONS = {
    "another address": (
        OTHER,
        f"ip address add {ELSEWHERE}/24 dev eth0 && {ROUTE} {ELSEWHERE}",
        f"{ROUTE} 192.168.1.17; ip address del {ELSEWHERE}/24 dev eth0",
        (
            f"{OTHER} asks for ps:0 at 192.168.1.16:2222 from {ELSEWHERE}, and the inventory says"
            " 192.168.1.17"
        ),
    ),
    "a firewall of the owner's": (
        HUB,
        f"printf '%s' '{ONLY_SSH}' | nft -f -",
        "nft delete table inet owner",
        f"{NEEDED}: timed out",
    ),
}


@contextmanager
def changed(place: Place, node: str, there: str, back: str) -> Iterator[None]:
    place.on(node, there)
    try:
        yield
    finally:
        place.on(node, back)


@pytest.mark.parametrize(("node", "there", "back", "says"), REASONS.values(), ids=list(REASONS))
def test_a_worker_that_does_not_reach_its_servers_is_named(
    place: Place, node: str, there: str, back: str, says: str
) -> None:
    operator = place.operator
    with changed(place, node, there, back):
        found = place.problems()
        rows = operator.status(code=3)
        began = operator.fab("deploy", "start", "--no-jobs", code=3)
    assert any(says in one["line"] for one in found if one["node"] == OTHER), found
    assert says in rows[OTHER]["trouble"]
    assert rows[HUB]["well"]
    assert says in began.text
    eventually(operator.well, "both nodes are well again")


def test_what_the_owner_serves_on_a_node_stays_open(place: Place) -> None:
    """An exporter and an NFS server of the owner's on a node that has neither from us."""
    names = {9100: "owners-exporter", 2049: "owners-nfs"}
    for port, name in names.items():
        place.on(
            OTHER,
            f"systemd-run --quiet --unit={name} --working-directory=/tmp python3 -m http.server"
            f" {port}",
        )
    try:
        place.operator.fab("deploy", "start", "--no-jobs")
        eventually(lambda: len(open_to_strangers(place.lab, [9100, 2049])) == 2, "both answer")
        assert open_to_strangers(place.lab, [9100, 2049]) == [f"{OTHER}:9100", f"{OTHER}:2049"]
        with_exporter = ("--set", "deployment.node_exporter=true")
        found = place.problems(*with_exporter)
    finally:
        place.on(OTHER, f"systemctl stop {' '.join(names.values())}")
    (problem,) = found
    assert "port 9100 of the node exporter is taken by process" in problem["line"]


def test_an_export_of_the_owner_whose_folder_is_gone_stops_no_start(place: Place) -> None:
    stale = "/etc/exports.d/owner.exports"
    place.on(
        HUB,
        f"echo '/media/pi/OLD_USB *(ro)' >{stale}; rm /etc/exports.d/pscluster.exports; !"
        " exportfs -ra",
    )
    try:
        place.operator.fab("deploy", "start", "--no-jobs")
        assert "192.168.1.17(" in place.on(HUB, "exportfs -s")
    finally:
        place.on(HUB, f"rm {stale}; exportfs -ra")


def test_an_empty_folder_in_the_place_of_the_shared_one_is_noticed(place: Place) -> None:
    """As after a boot without the disk."""
    with changed(place, HUB, "mount -t tmpfs none /srv/pscluster", "umount /srv/pscluster"):
        found = place.problems()
        rows = place.operator.status(code=3)
        place.operator.fab("deploy", "start", "--no-jobs", code=3)
        assert place.on(HUB, "ls -A /srv/pscluster") == ""
    says = "/srv/pscluster is not the folder of the first start"
    assert any(says in one["line"] for one in found)
    assert says in rows[HUB]["trouble"]
    place.operator.fab("deploy", "start", "--no-jobs")
