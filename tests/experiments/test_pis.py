"""What the benchmark over emulated Pis makes of its rounds."""

from experiments.pis import cut


def test_the_first_workers_are_kept_and_every_other_role() -> None:
    nodes = [{"name": "a", "roles": ["worker"]}, {"name": "b", "roles": ["worker"]}]
    inventory = {"nodes": [*nodes, {"name": "c", "roles": ["ps", "worker"]}]}
    assert [(node["name"], node["roles"]) for node in cut(inventory, 1)["nodes"]] == [
        ("a", ["worker"]),
        ("c", ["ps"]),
    ]
    assert cut(inventory, 3) == inventory
