"""The process that runs on the node loads none of its tenants: the coordinator sends those as graphs."""

from tests.server.entry_points import HEAVY, MOST_ANONYMOUS_BYTES, loaded_by


def test_the_entry_point_loads_neither_tensorflow_nor_its_tenants_and_stays_small() -> None:
    loaded = loaded_by("ps_node")
    assert "cluster.server.tensorflow_server" in loaded.modules, "nothing was read"
    assert not loaded.packages & HEAVY
    assert loaded.within("ps_node", "worker_node") <= {"ps_node", "ps_node.__main__"}
    assert not loaded.within("cluster.engine", "cluster.jobs", "cluster.models", "cluster.data", "cluster.inventory")
    assert loaded.anonymous_bytes < MOST_ANONYMOUS_BYTES
