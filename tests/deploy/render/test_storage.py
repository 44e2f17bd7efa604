import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.cluster.places import shared_folders
from deploy.render.storage import exports, fstab_lines, server_settings
from tests.inventory.cases import machine, problems, read

EXTERNAL = """\
schema: 1
cluster: nas
connection: ssh
nodes:
  - {name: a, address: 10.0.0.1, roles: [ps, coordinator]}
  - {name: b, address: 10.0.0.2, roles: [worker]}
storage: {external: "nas.local:/volume1/pscluster"}
"""


def of(workers: int, server: int, coordinator: int) -> str:
    nodes = []
    for number in range(workers + 1):
        roles = ["worker"] if number else ["ps"]
        roles += ["storage"] if number == server else []
        roles += ["coordinator"] if number == coordinator else []
        nodes.append(
            f"  - {{name: n{number}, address: 10.0.{number // 200}.{number % 200 + 1}, roles: [{', '.join(roles)}]}}"
        )
    return f"schema: 1\ncluster: c\nconnection: ssh\nstorage: {{server: n{server}}}\nnodes:\n" + "\n".join(nodes)


@given(workers=st.integers(1, 40), data=st.data())
@settings(max_examples=30, deadline=None)
def test_each_client_has_an_entry_of_its_own_and_one_may_write(workers: int, data: st.DataObject) -> None:
    server, coordinator = data.draw(st.integers(0, workers)), data.draw(st.integers(0, workers))
    inventory = read(of(workers, server, coordinator), on=machine())
    text = exports(inventory, shared_folders(inventory))
    entries = re.findall(r"(\S+)\(([^)]*)\)", text)
    assert not re.search(r"\*|no_root_squash|0777|insecure|/\d+\(", text)
    others = [inventory.hosts[node.name] for node in inventory.nodes if node.name != f"n{server}"]
    writer = [] if server == coordinator else [inventory.hosts[f"n{coordinator}"]]
    found = {line.split()[0].rpartition("/")[2]: re.findall(r"(\S+)\((r[ow]),", line) for line in text.splitlines()[1:]}
    assert found.get("shared", []) == [(client, "ro") for client in others]
    assert found.get("runs", []) == [(client, "rw") for client in writer]
    assert found.get("data", []) == [(client, "rw" if client in writer else "ro") for client in others]
    for _, options in entries:
        assert {"all_squash", "anonuid=890", "anongid=890", "sync"} <= set(options.split(","))
    assert {line.split()[0] for line in text.splitlines()[1:]} <= {
        f"/srv/pscluster/{part}" for part in ("shared", "data", "runs")
    }


@pytest.mark.parametrize(("nodes", "threads"), [(2, 8), (4, 8), (5, 10), (16, 32)])
def test_the_server_has_threads_for_its_clients(nodes: int, threads: int) -> None:
    settings_text = server_settings(read(of(nodes - 1, 0, 0), on=machine()))
    assert f"threads={threads}\n" in settings_text
    assert "vers3=n\n" in settings_text


@pytest.mark.parametrize("export", ["/volume1/pscluster", "/volume1//pscluster/"])  # mount tables know the first one
def test_an_export_that_exists_is_mounted_whole_and_written_to_by_one(export: str) -> None:
    inventory = read(EXTERNAL.replace("/volume1/pscluster", export), on=machine())
    folders = shared_folders(inventory)
    (writer,), (reader,) = (fstab_lines(inventory, name, folders) for name in "ab")
    assert writer.startswith("nas.local:/volume1/pscluster /mnt/pscluster nfs4 rw,hard,")
    assert reader.startswith("nas.local:/volume1/pscluster /mnt/pscluster nfs4 ro,hard,")
    assert folders.publish_folder == "/mnt/pscluster/shared"


@pytest.mark.parametrize("key", ["export", "mount"])
def test_a_path_that_means_something_else_somewhere_is_refused(key: str) -> None:
    whole = ["/", "/srv/", "//srv", "/srv/../etc", "/srv/.", "srv", "/srv/\u00a0x", "/srv\n/x"]
    for path in [*whole, *(f"/srv{character}x" for character in " '\"$`%,:;#\\*()&|<>?![]{}=^")]:
        quoted = "".join(f"\\x{ord(one):02x}" for one in path)
        text = of(1, 0, 0).replace("{server: n0}", f'{{server: n0, {key}: "{quoted}"}}')
        assert [problem for problem in problems(text, on=machine()) if key in str(problem)], path
