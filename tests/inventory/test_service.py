"""The nodes that answer with a trained model."""

import pytest

from tests.inventory.cases import edited, machine, only, problems, read

ROLE = ("roles: [worker]\n  - name: rpi03", "roles: [worker, service]\n  - name: rpi03")
BOTH = ("roles: [worker]\n  - name: rpi03", "roles: [worker, service, service]\n  - name: rpi03")


def settings(text: str) -> tuple[str, str]:
    return ("storage:", f"service: {{{text}}}\nstorage:")


def test_a_node_may_serve_and_takes_no_task() -> None:
    inventory = read(edited(ROLE, ("[storage, ps, coordinator]", "[storage, ps, coordinator, service]")), on=machine())
    assert set(inventory.service_nodes) == {"rpi01", "rpi02"}
    assert [task.name for task in inventory.tasks()] == ["ps:0", "worker:0", "worker:1", "coordinator:0"]
    assert read(edited(), on=machine()).service_nodes == ()


def test_a_node_serves_once() -> None:
    assert "the role service twice - keep one" in str(only(edited(BOTH), on=machine()))


def test_its_ports_are_no_other_s() -> None:
    problem = str(only(edited(ROLE, settings("port: 9201")), on=machine()))
    assert "port 9201 on rpi02 is worker:0's metrics_port already, and would be the service's too" in problem
    assert "service.port" in problem
    problem = str(only(edited(ROLE, settings("metrics_port: 8470")), on=machine()))
    assert "port 8470 on rpi02 is the service's already, and would be the service's metrics_port too" in problem
    read(edited(settings("port: 9201")), on=machine())  # no node has the role


def test_one_machine_serves_with_fab_serve() -> None:
    text = (
        "schema: 1\ncluster: c\nnodes:\n  - {name: a, address: 127.0.0.1, roles: [ps, worker, coordinator, service]}\n"
    )
    problem = str(only(text, on=machine()))
    assert "the role service with `connection: local`" in problem
    assert "`fab serve` answers on this machine" in problem


@pytest.mark.parametrize(
    "wrong",
    ["model: ../x", "model: 'a b'", "model: ''", "allow: [10.0.0.300]", "allow: 'any; drop'", "threads: 0", "port: 0",
     "batch_milliseconds: -1", "batch_milliseconds: 1001", "batch_milliseconds: .nan", "shadow_seconds: 3601",
     "shadow_seconds: soon", "least_agreement: 1.1", "memory_megabytes: 10", "tls: maybe", "unknown: 1",
     "names: [a/b]", "names: [a..b]", "key: etc", "key: /a b"],
)  # fmt: skip
def test_a_wrong_setting_is_a_problem(wrong: str) -> None:
    (problem,) = problems(edited(ROLE, settings(wrong)), on=machine())
    assert f"service.{wrong.partition(':')[0]}" in str(problem)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("certificate: /etc/har/chain.pem", "a certificate alone"),
        ("key: /etc/har/key.pem", "a key alone"),
        ("tls: false, certificate: /etc/har/chain.pem, key: /etc/har/key.pem", "a certificate, and `tls: false` too"),
    ],
)
def test_a_certificate_has_its_key_and_its_purpose(given: str, said: str) -> None:
    assert said in str(only(edited(ROLE, settings(given)), on=machine()))
    read(edited(ROLE, settings("certificate: /etc/har/chain.pem, key: /etc/har/key.pem")), on=machine())
