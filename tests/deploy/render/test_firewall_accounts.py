"""The nftables table in two network namespaces: which account reaches and answers from a port."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deploy.cluster.places import account_numbers
from deploy.converge.roles import LISTING
from deploy.render.network import MOST_CONNECTIONS, OPEN_CONNECTIONS, firewall_mark, ruleset
from tests.core.server.namespaces import ip, why_not
from tests.deploy.converge.pi import thesis
from tests.deploy.render.test_firewall import loaded
from tests.habits import needs
from tests.hang import HANG_SECONDS

LOCAL = "127.0.0.1"
HERE = "192.168.1.16"
THERE = "192.168.1.17"
THIRD = "192.168.1.18"
ELSEWHERE = "10.77.0.17"
"""Three nodes of the inventory, and an address of the second one that is in no inventory."""
GRAPHS = 2222
COORDINATOR = 2224
PROGRAM = 2240
METRICS = 9200
JOB_METRICS = 9202
SERVED = 8470
SERVED_METRICS = 9204
MONITOR_PORT = 9090
EXPORTER = 9100
NFS = 2049
OTHER = 7777
JOB, ROLE, SERVICE, MONITOR = range(890, 894)
EXPORTER_ACCOUNT = 105
STRANGER = 65534
WATCHED = thesis("deployment.node_exporter=true", rpi01="monitor", rpi02="service")
ANSWERING = {
    JOB: (COORDINATOR, PROGRAM, JOB_METRICS),
    ROLE: (GRAPHS, METRICS),
    SERVICE: (SERVED, SERVED_METRICS),
    MONITOR: (MONITOR_PORT,),
    EXPORTER_ACCOUNT: (EXPORTER,),
}
"""Which account answers from a port that the table closes."""
CLOSED = tuple(port for ports in ANSWERING.values() for port in ports)

PYTHON = (sys.executable, "-I", "-S", "-c")
AS_ACCOUNT = """
import os, socket, sys
def become(uid):
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
"""
SERVE = f"""{AS_ACCOUNT}
import json
for uid, ports in json.loads(sys.argv[1]):
    if os.fork() == 0:
        become(uid)
        listeners = [socket.create_server(("", port), backlog=4096) for port in ports]
        print("listening", flush=True)
        sys.stdin.read()
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
CONNECT = f"""
import encodings.idna, json
from concurrent.futures import ThreadPoolExecutor
{AS_ACCOUNT}
become(int(sys.argv[1]))
def found(word):
    host, port = word.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        return "connected"
    except OSError as error:
        return type(error).__name__
words = sys.argv[2:]
print(json.dumps(dict(zip(words, ThreadPoolExecutor(len(words)).map(found, words)))))
"""


CROWD = """
import select, socket, struct, sys
host, port, most, source, another = sys.argv[1:]
address = (host, int(port))
def connect(source):
    return socket.create_connection(address, source_address=(source, 0))
crowd = [connect(source) for _ in range(int(most))]
one_more = socket.socket()
one_more.bind((source, 0))
one_more.setblocking(False)
one_more.connect_ex(address)
connect(another)
print(bool(select.select([], [one_more], [], 0)[1]), flush=True)
sys.stdin.readline()
crowd[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
crowd[0].close()
select.select([], [one_more], [])
print(one_more.getpeername()[0])
"""


def inside(name: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", name, *words]


@contextmanager
def serving(name: str, ports_of: Mapping[int, Sequence[int]]) -> Iterator[None]:
    """A process of each of these accounts of a node listens at its ports."""
    words = inside(name, *PYTHON, SERVE, json.dumps([*ports_of.items()]))
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        for _ in ports_of:
            assert process.stdout.readline() == "listening\n"
        yield
        process.communicate(timeout=HANG_SECONDS)


@contextmanager
def wired(*ours: str, theirs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The network namespaces of two nodes on one cable, each with its addresses."""
    needs.possible(why_not())
    tag = uuid.uuid4().hex[:8]
    names = (f"pfa{tag}", f"pfb{tag}")
    cable = "link add cable type veth peer name cable netns"
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], *cable.split(), names[1])
        for name, addresses in zip(names, (ours, theirs), strict=True):
            for address in addresses:
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two nodes on one cable, each with the table, and with nobody at its ports."""
    needs.tool("nft")
    rules = tmp_path_factory.mktemp("rules") / "rules.nft"
    rules.write_text(ruleset(WATCHED, "rpi11"))
    with wired(HERE, THIRD, theirs=[THERE, ELSEWHERE]) as names:
        ip("-n", names[0], "route", "add", f"{ELSEWHERE}/32", "dev", "cable", "src", HERE)
        for name in names:
            loaded(f"nft -f {rules}", *inside(name))
        yield names


@pytest.fixture
def served(pair: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Each account listens at its ports of both nodes, a stranger where no rule is."""
    with ExitStack() as stack:
        for name in pair:
            stack.enter_context(serving(name, {**ANSWERING, 0: (NFS,), STRANGER: (OTHER,)}))
        yield pair


def reached(pair: tuple[str, str], uid: int, hosts: list[str], *ports: int) -> dict[int, str]:
    """What connections of an account of the first node to all hosts come to, by port."""
    wanted = [f"{host}:{port}" for host in hosts for port in ports]
    words = inside(pair[0], *PYTHON, CONNECT, str(uid), *wanted)
    answers = json.loads(subprocess.check_output(words, timeout=HANG_SECONDS))
    return {port: " ".join({answers[f"{host}:{port}"] for host in hosts}) for port in ports}


def test_the_accounts_are_those_of_the_inventory() -> None:
    assert list(account_numbers(WATCHED).values()) == [JOB, ROLE, SERVICE, MONITOR]


def test_graphs_and_programs_answer_those_who_need_them(served: tuple[str, str]) -> None:
    ports = (*CLOSED, NFS, OTHER)
    no_graphs = (GRAPHS, COORDINATOR, PROGRAM)
    refused: dict[int, Sequence[int]] = {0: (), JOB: (), ROLE: (COORDINATOR, PROGRAM)}
    for uid in (0, JOB, ROLE, SERVICE, MONITOR, STRANGER):
        expected = dict.fromkeys(ports, "connected")
        expected |= dict.fromkeys(refused.get(uid, no_graphs), "ConnectionRefusedError")
        assert reached(served, uid, [LOCAL, HERE, THERE], *ports) == expected, uid


def test_an_address_that_is_in_no_inventory_is_no_way_in(served: tuple[str, str]) -> None:
    """The output chain of a node does not know it; the node that has it does."""
    found = reached(served, STRANGER, [ELSEWHERE], GRAPHS, OTHER)
    assert found == {GRAPHS: "TimeoutError", OTHER: "connected"}


@pytest.mark.parametrize("uid", [STRANGER, *ANSWERING])
def test_no_other_account_answers_from_a_port_of_a_process_that_is_down(
    pair: tuple[str, str], uid: int
) -> None:
    """Root of another node, and an account of this one, find it silent."""
    others = [port for port in (*CLOSED, NFS) if port not in ANSWERING.get(uid, ())]
    silent = dict.fromkeys(others, "TimeoutError")
    with serving(pair[1], {uid: [*others, OTHER]}):
        found = reached(pair, 0, [THERE], *others, OTHER)
    assert found == {**silent, OTHER: "connected"}
    if uid == STRANGER:
        with serving(pair[0], {uid: (SERVED, METRICS)}):
            found = reached(pair, 0, [HERE, LOCAL], SERVED, METRICS)
        assert found == dict.fromkeys((SERVED, METRICS), "TimeoutError")


def test_what_nft_lists_can_be_loaded_again(pair: tuple[str, str], tmp_path: Path) -> None:
    """The undo of a start does so."""
    table = "table inet pscluster"
    before = tmp_path / "before"
    listed = loaded(
        f"nft list {table} >{before} && nft delete {table} && nft -f {before} && nft list ruleset",
        *inside(pair[0]),
    )
    assert firewall_mark(WATCHED, "rpi11") in listed
    assert "meta skuid" in listed


def test_an_address_has_so_many_connections_to_a_port_and_the_rules_are_listed_as_before(
    pair: tuple[str, str],
) -> None:
    """One more connects once another ends; another address of the machine is not concerned."""
    words = (THERE, str(METRICS), str(MOST_CONNECTIONS), HERE, THIRD)
    pipe = subprocess.PIPE
    listing = loaded(LISTING, *inside(pair[1]))
    with (
        serving(pair[1], {ROLE: (METRICS,)}),
        subprocess.Popen(
            inside(pair[0], *PYTHON, CROWD, *words), stdin=pipe, stdout=pipe, text=True
        ) as crowd,
    ):
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "False\n"
        counted = loaded(f"nft list set inet pscluster {OPEN_CONNECTIONS}", *inside(pair[1]))
        assert f"{HERE} . {METRICS} ct count over {MOST_CONNECTIONS}" in counted
        assert loaded(LISTING, *inside(pair[1])) == listing
        assert crowd.communicate("\n", HANG_SECONDS)[0] == f"{THERE}\n"
