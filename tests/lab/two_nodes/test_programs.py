"""Any TensorFlow program over SSH: as the chief on the roles, and once on each worker's node."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ExitCode
from tests.lab import cgroups
from tests.lab.operator import Operator
from tests.lab.places import PROJECT
from tests.lab.two_nodes.place import HUB, NODES, Place

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

EXAMPLES = PROJECT / "examples" / "programs"
LEAD = "192.168.1.16:2240"
WAITS = """\
    import pathlib, time

    print("it waits")
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        pathlib.Path("last.txt").write_text("interrupted")
        raise
    """
FAILS = """\
    import os, socket, sys, time

    import humanize

    print(humanize.intcomma(12345), os.getcwd())
    first = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0":
        listener = socket.create_server(first)
        time.sleep(600)
    while True:
        try:
            socket.create_connection(first, timeout=5)
            sys.exit(7)
        except OSError:
            time.sleep(0.1)
    """


def result(operator: Operator) -> tuple[Path, dict[str, Any]]:
    """The newest run of a program that was fetched, and its result."""
    return operator.newest("*-run*/result.json").parent, operator.read("*-run*/result.json")


def program(operator: Operator, name: str, source: str) -> str:
    """A program alone in a folder; its path for a command."""
    folder = operator.folder / "programs"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(textwrap.dedent(source))
    return f"programs/{name}"


def test_a_chief_trains_on_the_roles_that_the_deployment_keeps(place: Place) -> None:
    done = place.operator.fab(
        "job", "run", str(EXAMPLES / "parameter_server.py"), "--", "--steps", "400"
    )
    assert "400 steps: y = 3.0" in done.text
    folder, found = result(place.operator)
    assert (found["status"], found["exit_code"], found["attempts"]) == ("done", 0, 1)
    assert found["tasks"]["chief"]["node"] == HUB
    assert "400 steps: y = 3.0" in (folder / "output.log").read_text()
    assert place.operator.well(), "the roles outlive it"


def test_it_goes_on_without_its_operator_until_it_is_cancelled(place: Place) -> None:
    """On the workers' nodes, where the lead's port is for the service account and root alone."""
    operator = place.operator
    with operator.running(
        "job", "run", "--on", "workers", program(operator, "waits.py", WAITS)
    ) as begun:
        for worker in (0, 1):
            begun.wait_for(f"worker:{worker}: it waits")
        begun.interrupt()
        assert "continues; `fab job attach --job" in begun.end(ExitCode.CANCELLED).text
    for account, expected in {"pscluster": "connected", "pi": "ConnectionRefusedError"}.items():
        assert [*place.reached("rpi02", account, [LEAD]).values()] == [expected]
    name = operator.fab("job", "list", "--json").json()["jobs"][-1]
    assert (name["job"], name["state"]) == ("run", "running")
    with operator.running("job", "attach") as attached:
        attached.wait_for("worker:1: it waits")
        assert f"job {name['id']}: cancelled" in operator.fab("job", "cancel").stdout
        attached.end(ExitCode.CANCELLED)
    folder, found = result(operator)
    assert found["status"] == "cancelled"
    for worker in (0, 1):
        assert (folder / "files" / f"worker-{worker}" / "last.txt").read_text() == "interrupted"


def test_equal_workers_reach_each_other_and_their_files_come_back(place: Place) -> None:
    done = place.operator.fab("job", "run", "--on", "workers", str(EXAMPLES / "multi_worker.py"))
    assert "worker:1: worker 1 of 2: y = 3.0" in done.text
    folder, found = result(place.operator)
    assert {name: (task["node"], task["exit_code"]) for name, task in found["tasks"].items()} == {
        f"worker:{index}": (node, 0) for index, node in enumerate(NODES)
    }
    first, second = (
        (folder / "files" / f"worker-{index}" / "line.json").read_text() for index in (0, 1)
    )
    assert first == second
    assert [cgroups.usage(place.lab.places, node)["killed_for_memory"] for node in NODES] == [0, 0]


def test_one_that_fails_on_one_node_ends_all_and_is_named(place: Place) -> None:
    """Each node has the packages of the program, and nothing of it afterwards."""
    operator = place.operator
    (operator.folder / "wanted.txt").write_text("humanize\n")
    words = ("--requirements", "wanted.txt", program(operator, "fails.py", FAILS))
    done = operator.fab("job", "run", "--on", "workers", *words, code=1)
    assert (
        "fails.py ended with exit code 7 on worker:1 (node rpi02); its output is in runs/"
        in done.text
    )
    folder, found = result(operator)
    assert (found["status"], found["exit_code"], found["failed_first"]) == ("failed", 7, "worker:1")
    assert found["tasks"]["worker:0"]["ended_by_us"]
    for index, node in enumerate(NODES):
        assert (
            (folder / f"worker-{index}.log")
            .read_text()
            .startswith("12,345 /var/lib/pscluster/jobs/")
        )
        assert place.on(node, "systemctl list-units --plain --no-legend 'pscluster-job@*'") == ""
        assert place.on(node, "pgrep -f [f]ails.py || echo none") == "none"
