import itertools
import socket

import pytest

from cluster.server.devices import Taken, environment, visible
from cluster.server.options import RoleName, explicit_flags, options, parse
from cluster.server.sockets import check_free, explain
from cluster.server.systemd import notify
from tests.server.processes import free_ports

MINIMAL = ["--task", "2", "--host", "127.0.0.1", "--port", "2222", "--metrics-port", "9200"]


def test_a_role_from_flags_alone() -> None:
    role = options("worker", parse("worker", [*MINIMAL, "--peers", "15"]))
    assert (role.name, role.address, role.metrics_port) == ("worker:2", "127.0.0.1:2222", 9200)
    assert role.inter_op_threads == 17
    assert role.guard == "loopback"
    assert role.server == "lean"


@pytest.mark.parametrize(
    ("host", "guard"),
    [("127.0.0.1", "loopback"), ("localhost", "loopback"), ("::1", "loopback"), ("192.168.1.26", "none")],
)
def test_a_loopback_host_is_guarded_unless_told_otherwise(host: str, guard: str) -> None:
    flags = [*MINIMAL[:2], "--host", host, *MINIMAL[4:]]
    assert options("ps", parse("ps", flags)).guard == guard
    assert options("ps", parse("ps", [*flags, "--guard", "none"])).guard == "none"


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert options("ps", parse("ps", [*MINIMAL[:2], "--host", "::1", *MINIMAL[4:]])).address == "[::1]:2222"


@pytest.mark.parametrize("name", ["ps", "worker"])
def test_explicit_flags_give_the_same_role_back(name: RoleName) -> None:
    for guard, server in itertools.product(("loopback", "none"), ("lean", "stock")):
        flags = [*MINIMAL, "--peers", "4", "--guard", guard, "--server", server, "--intra-op-threads", "3"]
        for more in ([], ["--coordinator", "192.168.1.26"]):
            role = options(name, parse(name, [*flags, *more]))
            assert options(name, parse(name, explicit_flags(role))) == role


def test_a_worker_sees_the_device_it_takes_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment(options("worker", parse("worker", MINIMAL)).taken) == {"CUDA_VISIBLE_DEVICES": "-1"}
    role = options("worker", parse("worker", [*MINIMAL, "--device", "gpu:2"]))
    assert options("worker", parse("worker", explicit_flags(role))) == role
    growing = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert environment(role.taken) == {"CUDA_VISIBLE_DEVICES": "2", **growing}
    whole = options("worker", parse("worker", [*MINIMAL, "--device", "gpu:0:whole"])).taken
    assert environment(whole)["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    assert environment(Taken("tpu", 1)) == {"TPU_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    all_of_them = dict(visible("gpu", ()))
    assert all_of_them.pop("CUDA_VISIBLE_DEVICES").startswith("0,1,2,")
    assert all_of_them == growing


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--task"),
        (["--task", "0"], "expected --inventory FILE, or all of --host, --port and --metrics-port"),
        (["--task", "-1", *MINIMAL[2:]], "expected a whole number from 0 to"),
        ([*MINIMAL, "--port", "70000"], "expected a whole number from 1 to 65535, got '70000'"),
        ([*MINIMAL, "--port", "http"], "expected a whole number from 1 to 65535, got 'http'"),
        ([*MINIMAL, "--device", "gpu"], "expected gpu:NUMBER or tpu:NUMBER, got 'gpu'"),
        ([*MINIMAL, "--coordinator", "rpi11"], "expected an IP address or `token`, got 'rpi11'"),
        ([*MINIMAL, "--coordinator", "token"], "`token` needs the cluster's token in $PSCLUSTER_TOKEN"),
        ([*MINIMAL, "--inventory", "inventory.yaml"], "--inventory already says what --host, --metrics-port, --port"),
        ([*MINIMAL, "--set", "cluster=x"], "--set overrides keys of an inventory"),
    ],
)
def test_bad_usage_says_what_was_expected(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("ps", flags)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_free_port_is_free_and_an_address_of_nobody_is_an_error() -> None:
    (port,) = free_ports(1)
    check_free("127.0.0.1", port, "the test")
    check_free("::" if socket.has_dualstack_ipv6() else "", port, "the test")
    with pytest.raises(Exception, match=r"the test cannot listen on 198\.18\.99\.99:\d+: no interface of this machine"):
        check_free("198.18.99.99", port, "the test")
    assert "need root" in str(explain(PermissionError(13, "Permission denied"), "", 80, "the test"))


@pytest.mark.parametrize("abstract", [False, True])
def test_readiness_is_told_to_whoever_asked(tmp_path_factory: pytest.TempPathFactory, abstract: bool) -> None:
    path = str(tmp_path_factory.mktemp("n") / "s")
    address = "@" + path if abstract else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + path if abstract else path)
        assert notify("READY=1", {"NOTIFY_SOCKET": address})
        assert listening.recv(64) == b"READY=1"


def test_readiness_is_told_to_nobody_without_an_address() -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "/nowhere/at/all"})
