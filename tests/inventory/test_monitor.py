"""The node that watches the others."""

from tests.inventory.cases import edited, machine, only, read

ROLE = ("roles: [worker]\n  - name: rpi03", "roles: [worker, monitor]\n  - name: rpi03")


def test_a_node_may_watch_the_others_and_takes_no_task() -> None:
    inventory = read(edited(ROLE), on=machine())
    assert inventory.monitor_node == "rpi02"
    assert [task.name for task in inventory.tasks()] == ["ps:0", "worker:0", "worker:1", "coordinator:0"]
    assert read(edited(), on=machine()).monitor_node is None


def test_there_is_one_monitor_at_most() -> None:
    problem = only(edited(ROLE, ("[storage, ps, coordinator]", "[storage, ps, coordinator, monitor]")), on=machine())
    assert "a second monitor" in str(problem)
    assert "keep one" in str(problem)


def test_its_port_is_no_other_s() -> None:
    problem = only(edited(ROLE, ("storage:", "monitor: {port: 9201}\nstorage:")), on=machine())
    assert "port 9201 on rpi02 is worker:0's metrics_port already, and would be the monitor's too" in str(problem)
    assert "monitor.port" in str(problem)
    problem = only(edited(ROLE, ("roles: [worker, monitor]", "roles: [{worker: {port: 9090}}, monitor]")), on=machine())
    assert "port 9090" in str(problem)


def test_on_another_node_the_port_is_free() -> None:
    read(edited(("storage:", "monitor: {port: 9201}\nstorage:")), on=machine())
