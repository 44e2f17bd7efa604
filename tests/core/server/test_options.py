import socket

import pytest

from core.ground.ports import check_free, every_interface, port_refusal
from core.server.options import RoleName, RoleOptions, explicit_flags, options, parse
from core.server.process import ClaimedDevice, device_environment, notify, role_environment
from tests.ports import free_ports
from tests.tables import table

MINIMAL = ["--task", "2", "--host", "127.0.0.1", "--port", "2222", "--metrics-port", "9200"]


def role(name: RoleName, *flags: str) -> RoleOptions:
    return options(name, parse(name, [*MINIMAL, *flags]))


def test_a_role_from_flags_alone() -> None:
    found = role("worker", "--peers", "15")
    assert (found.name, found.address, found.metrics_port) == ("worker:2", "127.0.0.1:2222", 9200)
    assert (found.guard, found.server) == ("loopback", "lean")
    assert role("ps", "--host", "::1").address == "[::1]:2222"


def test_a_workers_threads_do_not_grow_with_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.server.options.usable_cores", lambda: 8)
    for peers in (2, 128):
        flags = ("--peers", str(peers))
        assert role("ps", *flags).inter_op_threads == peers + 2
        assert role("worker", *flags).inter_op_threads == 12
        assert role("worker", *flags, "--workers-here", "2").inter_op_threads == 8
        assert role("worker", *flags, "--workers-here", "128").inter_op_threads == 6


@pytest.mark.parametrize(("host", "guard"), table("core/server/tables", "guards").items())
def test_a_loopback_host_is_guarded_unless_told_otherwise(host: str, guard: str) -> None:
    assert role("ps", "--host", host).guard == guard
    assert role("ps", "--host", host, "--guard", "none").guard == "none"


@pytest.mark.parametrize("name", ["ps", "worker"])
@pytest.mark.parametrize("guard", ["loopback", "none"])
@pytest.mark.parametrize("server", ["lean", "stock"])
@pytest.mark.parametrize("more", [(), ("--coordinator", "192.168.1.26"), ("--device", "gpu:2")])
def test_explicit_flags_give_the_same_role_back(
    name: RoleName, guard: str, server: str, more: tuple[str, ...]
) -> None:
    flags = ("--peers", "4", "--guard", guard, "--server", server, "--intra-op-threads", "3")
    found = role(name, *flags, *more)
    assert options(name, parse(name, explicit_flags(found))) == found


GROWING = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def test_a_worker_sees_the_device_it_takes_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    none = {"CUDA_VISIBLE_DEVICES": "-1"}
    assert role_environment(role("worker").claimed_device) == none
    taken = role("worker", "--device", "gpu:2").claimed_device
    assert role_environment(taken) == {"CUDA_VISIBLE_DEVICES": "2", **GROWING}
    whole = role("worker", "--device", "gpu:0:whole").claimed_device
    assert role_environment(whole)["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    assert role_environment(ClaimedDevice("tpu", 1)) == {"TPU_VISIBLE_DEVICES": "1", **none}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    all_of_them = dict(device_environment("gpu", ()))
    assert all_of_them.pop("CUDA_VISIBLE_DEVICES").startswith("0,1,2,")
    assert all_of_them == GROWING


@pytest.mark.parametrize(("flags", "said"), table("core/server/tables", "bad usage").items())
def test_bad_usage_says_what_was_expected(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("ps", flags.replace("...", " ".join(MINIMAL)).split())
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_free_port_is_free_and_an_address_of_nobody_is_an_error() -> None:
    (port,) = free_ports(1)
    check_free("127.0.0.1", port, "the test")
    check_free(every_interface(), port, "the test")
    with pytest.raises(
        Exception,
        match=r"the test cannot listen on 198\.18\.99\.99:\d+: no interface of this machine",
    ):
        check_free("198.18.99.99", port, "the test")
    assert "need root" in str(
        port_refusal(PermissionError(13, "Permission denied"), "", 80, "the test")
    )


@pytest.mark.parametrize(("prefix", "bound"), [("", ""), ("@", "\0")])
def test_readiness_is_told_to_whoever_asked(
    tmp_path_factory: pytest.TempPathFactory, prefix: str, bound: str
) -> None:
    path = str(tmp_path_factory.mktemp("n") / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(bound + path)
        assert notify("READY=1", {"NOTIFY_SOCKET": prefix + path})
        assert listening.recv(64) == b"READY=1"


@pytest.mark.parametrize("asking", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_readiness_is_told_to_nobody_without_an_address(asking: dict[str, str]) -> None:
    assert not notify("READY=1", asking)
