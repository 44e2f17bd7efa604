"""The process that runs on the node loads none of its tenants: the coordinator sends graphs."""

import pytest

from tests.core.server.entry_points import HEAVY, MOST_ANONYMOUS_BYTES, loaded_by


@pytest.mark.parametrize("package", ["ps_node", "worker_node"])
def test_an_entry_point_loads_neither_tensorflow_nor_its_tenants_and_stays_small(
    package: str,
) -> None:
    loaded = loaded_by(package)
    assert "core.server.tensorflow_server" in loaded.modules, "nothing was read"
    assert not loaded.packages & HEAVY
    assert loaded.within("ps_node", "worker_node") <= {package, f"{package}.__main__"}
    assert not loaded.within(
        "core.engine", "cluster.jobs", "core.models", "core.data", "core.inventory"
    )
    assert loaded.anonymous_bytes < MOST_ANONYMOUS_BYTES
