"""NFS for any number of nodes; `rendered/` has exports and mounts of two."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.cluster.places import shared_folders
from deploy.render.storage import exports, server_settings
from tests.core.inventory.cases import machine, problems, read
from tests.deploy.render.rendered import MINIMAL, STORED
from tests.deploy.tables import Tables

rows = Tables(__file__)


def of(workers: int, server: int, coordinator: int) -> str:
    nodes = []
    for number in range(workers + 1):
        roles = ["worker" if number else "ps"]
        roles += ["storage"] if number == server else []
        roles += ["coordinator"] if number == coordinator else []
        address = f"10.0.{number // 200}.{number % 200 + 1}"
        nodes.append(f"  - {{name: n{number}, address: {address}, roles: [{', '.join(roles)}]}}\n")
    head = f"schema: 1\ncluster: c\nconnection: ssh\nstorage: {{server: n{server}}}\nnodes:\n"
    return head + "".join(nodes)


@given(workers=st.integers(1, 40), data=st.data())
@settings(max_examples=30, deadline=None)
def test_each_client_has_an_entry_of_its_own_and_one_may_write(
    workers: int, data: st.DataObject
) -> None:
    server, coordinator = (data.draw(st.integers(0, workers)) for _ in range(2))
    inventory = read(of(workers, server, coordinator), on=machine())
    text = exports(inventory, shared_folders(inventory))
    others = [inventory.hosts[node.name] for node in inventory.nodes if node.name != f"n{server}"]
    writer = {inventory.hosts[f"n{coordinator}"]} & {*others}
    squashed = "sync,no_subtree_check,all_squash,anonuid=890,anongid=890"
    found = {
        line.split()[0]: re.findall(rf" (\S+)\((r[ow]),{squashed}\)", line)
        for line in text.splitlines()[1:]
    }
    access = {client: "rw" if client in writer else "ro" for client in others}
    wanted = {
        "/srv/pscluster/shared": [(client, "ro") for client in others],
        "/srv/pscluster/data": list(access.items()),
        "/srv/pscluster/runs": [(client, "rw") for client in writer],
    }
    assert found == {folder: clients for folder, clients in wanted.items() if clients}
    assert text.count("(") == sum(map(len, found.values()))  # no entry of another shape


@rows("nodes", "threads")
def test_the_server_has_threads_for_its_clients(nodes: int, threads: int) -> None:
    settings_text = server_settings(read(of(nodes - 1, 0, 0), on=machine()))
    assert f"threads={threads}\n" in settings_text
    assert "vers3=n\n" in settings_text


def test_an_export_is_named_as_mount_tables_know_it() -> None:
    folders = shared_folders(read(MINIMAL + STORED.replace("/volume1/x", "/volume1//x/")))
    assert folders.source == "nas.local:/volume1/x"
    assert folders.publish_folder == "/mnt/pscluster/shared"


@pytest.mark.parametrize("key", ["export", "mount"])
def test_a_path_that_means_something_else_somewhere_is_refused(key: str) -> None:
    whole = ["/", "/srv/", "//srv", "/srv/../etc", "/srv/.", "srv", "/srv/\u00a0x", "/srv\n/x"]
    for path in [*whole, *(f"/srv{character}x" for character in " '\"$`%,:;#\\*()&|<>?![]{}=^")]:
        quoted = "".join(f"\\x{ord(one):02x}" for one in path)
        text = of(1, 0, 0).replace("{server: n0}", f'{{server: n0, {key}: "{quoted}"}}')
        assert [problem for problem in problems(text, on=machine()) if key in str(problem)], path
