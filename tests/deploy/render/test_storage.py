"""What the server of NFS is set to, and which paths it takes; `rendered/` has its exports."""

import pytest

from deploy.cluster.places import shared_folders
from deploy.render.storage import server_settings
from tests.core.inventory.cases import machine, problems, read
from tests.deploy.render.rendered import MINIMAL, STORED
from tests.deploy.tables import Tables

rows = Tables(__file__)


def of(workers: int) -> str:
    """An inventory whose first node is server and coordinator."""
    nodes = [
        f"  - {{name: n{number}, address: 10.0.0.{number + 1}, roles: [worker]}}\n"
        for number in range(1, workers + 1)
    ]
    first = "  - {name: n0, address: 10.0.0.1, roles: [ps, storage, coordinator]}\n"
    head = "schema: 1\ncluster: c\nconnection: ssh\nstorage: {server: n0}\nnodes:\n"
    return head + first + "".join(nodes)


@rows("nodes", "threads")
def test_the_server_has_threads_for_its_clients(nodes: int, threads: int) -> None:
    settings_text = server_settings(read(of(nodes - 1), on=machine()))
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
        text = of(1).replace("{server: n0}", f'{{server: n0, {key}: "{quoted}"}}')
        assert [problem for problem in problems(text, on=machine()) if key in str(problem)], path
