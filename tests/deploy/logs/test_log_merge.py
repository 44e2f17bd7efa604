"""Several logs, merged by time."""

import json
import logging
import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from core.control.own_state import make_private, state_of
from core.ground.errors import UsageError
from core.inventory.templates import local_inventory
from core.logs.lines import Speaker, formatter, utc
from deploy.cluster.fleet import Fleet, Local
from deploy.cluster.services import LogPlace
from deploy.commands.flags import seconds_of
from deploy.logs import (
    ClusterLogs,
    Interleaver,
    LogDisplay,
    LogQuery,
    in_order,
    not_before,
    readable,
)
from deploy.logs.sources import (
    DatedLog,
    Entry,
    FileLog,
    Place,
    log_of_latest_run,
    log_of_run,
    with_beginning,
)
from tests.deploy.logs.files import write
from tests.deploy.tables import Tables
from tests.deploy.typed import Fab

rows = Tables(__file__)

AT = 1795305600.0
RUN = "20261122T000000Z-train"


def line(seconds: float, role: str, message: str, run: str = "") -> str:
    place = f" run {run}" * bool(run)
    return f"{utc(AT + seconds)} INFO {role} 127.0.0.1:1{place}: {message}"


def test_lines_of_several_logs_stand_in_the_order_of_their_times() -> None:
    ps = DatedLog("ps:0")
    worker = DatedLog("worker:0")
    entries = [
        ps.date(line(1, "ps:0", "first"), AT),
        ps.date("    more of it", AT),
        ps.date(line(3, "ps:0", "third"), AT),
        worker.date("Traceback", AT),
        worker.date(line(1.5, "worker:0", "second"), AT),
    ]
    assert [LogDisplay(8).render(entry).partition(" ")[2] for entry in in_order(entries)] == [
        "worker:0 | Traceback",
        "ps:0     | first",
        "ps:0     |     more of it",
        "worker:0 | second",
        "ps:0     | third",
    ]


def test_the_lines_of_one_run_with_what_belongs_to_them() -> None:
    worker = DatedLog("worker:0")
    texts = [
        line(0, "worker:0", "ready"),
        line(1, "worker:0", f"run {RUN} begins", RUN),
        "2026-11-22 00:00:01.500000: W tensorflow/x.cc:1] slow",
        line(2, "worker:0", f"run {RUN} is over", RUN),
        line(3, "worker:0", "stopped by SIGTERM"),
        "    and more",
    ]
    wanted = [LogDisplay(8, RUN).wants(worker.date(text, AT)) for text in texts]
    assert wanted == [False, True, True, True, False, False]


def test_json_is_shown_readably() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "a\nb", (), None)
    made = formatter("json", Speaker("ps:0")).format(record)
    assert readable(made) == "WARNING a\nb"
    assert readable("{ not json") == "{ not json"
    assert LogDisplay(4).render(DatedLog("ps:0").date(made, AT)).count("| ") == 2


def shown_times(entry: Entry) -> tuple[str, str]:
    """The second that people and that programs are shown."""
    shown = json.loads(LogDisplay(4, for_programs=True).render(entry))
    return LogDisplay(4).render(entry).split()[0][-6:], shown["time"]


def test_the_milliseconds_shown_are_those_that_were_written() -> None:
    for milliseconds in range(1000):
        written = f"2026-11-22T00:00:01.{milliseconds:03d}Z"
        entry = DatedLog("ps:0").date(f"{written} INFO ps:0 127.0.0.1:1: x", AT)
        assert shown_times(entry) == (f"01.{milliseconds:03d}", written)


@rows("fraction", "shown")
def test_people_and_programs_are_shown_the_same_full_milliseconds(
    fraction: float, shown: str
) -> None:
    entry = DatedLog("ps:0").date("of the journal", AT, AT + fraction)
    assert shown_times(entry) == (shown, f"2026-11-22T00:00:{shown}Z")


LONG = [line(1, "ps:0", "it fails"), *(f"    row {row}" for row in range(30))]


def test_the_lines_asked_for_come_with_the_beginning_of_their_message() -> None:
    texts = [line(0, "ps:0", "before"), *LONG]
    for count, shown in ((20, LONG), (31, LONG), (32, texts), (99, texts)):
        assert with_beginning(texts, count) == shown
    assert with_beginning(LONG[1:], 20) == LONG[-20:]
    after = line(2, "ps:0", "after")
    assert with_beginning([*LONG, after], 1) == [after]
    assert with_beginning([], 20) == []


def test_lines_without_a_time_take_the_next_or_that_of_the_log_or_that_at_which_they_come() -> None:
    def seconds(*texts: str) -> list[float]:
        return [entry.seconds - AT for entry in DatedLog("ps:0").date_last(texts, AT + 9)]

    assert seconds(*LONG[-2:], line(2, "ps:0", "after"), "    more") == [2, 2, 2, 2]
    assert seconds("refused", "    more") == [9, 9]
    source = DatedLog("ps:0")
    source.date_last([], 0.0)
    assert [source.date("refused", AT + came).seconds - AT for came in (1, 2)] == [1, 2]


def test_what_comes_late_still_finds_its_place() -> None:
    waiting = Interleaver(0.5)

    def put(seconds: float, now: float) -> None:
        waiting.put(Entry(seconds, "", str(seconds), "", None), now)

    def taken(now: float) -> list[float]:
        return [one.seconds for one in waiting.take_due(now)]

    put(10.0, now=1.0)
    assert taken(now=1.2) == []
    put(9.0, now=1.3)
    put(11.0, now=1.3)
    assert taken(now=1.5) == [9.0, 10.0]
    assert taken(now=float("inf")) == [11.0]


NOW = datetime.fromisoformat("2026-11-22T12:30:00+01:00")


@rows("text", "expected")
def test_times_that_people_type(text: str, expected: str) -> None:
    assert seconds_of(text, NOW) == datetime.fromisoformat(expected).timestamp()


def test_a_time_without_a_zone_is_this_machines() -> None:
    assert seconds_of("2026-11-21 22:45", NOW) == time.mktime((2026, 11, 21, 22, 45, 0, 0, 0, -1))


@rows("text")
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--since: expected a time such as"):
        seconds_of(text, NOW)


def test_the_lines_of_a_run_are_looked_for_from_the_day_before_it_on() -> None:
    assert not_before(RUN) == AT - 86_400
    for run in ("", "mine", "20261322T000000Z-train", "19700101T000000Z-pi"):
        assert not_before(run) == 0


def last_of(place: Place) -> list[str]:
    log = FileLog("coordinator:0", place, 20)
    return [entry.text for entry in log.read(Local("here").run(log.reading()).stdout)]


def test_the_coordinators_log_is_that_of_the_run_written_to_last(tmp_path: Path) -> None:
    runs = tmp_path / "all the runs"
    assert last_of(log_of_latest_run(str(runs))) == []
    for name, seconds in (("1-train", 2), ("2-pi", 1)):
        path = runs / name / "coordinator.log"
        write(path, name)
        os.utime(path, (seconds, seconds))
    assert last_of(log_of_latest_run(str(runs))) == ["1-train"]
    assert last_of(log_of_run(str(runs), "2-pi")) == ["2-pi"]


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """A stopped cluster that has left its logs."""
    (tmp_path / "inventory.yaml").write_text(
        local_inventory(1, 1, lambda count: range(2222, 2222 + count))
    )
    logs = state_of(tmp_path / "inventory.yaml", "local") / "logs"
    make_private(logs)
    begins = f"run {RUN} begins"
    for role, ready, begun in (("worker", 1, 4), ("ps", 2, 5)):
        name = f"{role}:0"
        write(logs / f"{role}-0.log", line(ready, name, "ready"), line(begun, name, begins, RUN))
    write(logs / "supervisor.log", line(0, "supervisor", "started"))
    coordinator = tmp_path / "runs" / RUN / "coordinator.log"
    write(coordinator, line(3, "coordinator:0", "run begins", RUN), "    more")
    return tmp_path


def told(output: str) -> list[str]:
    return [
        f"{whose.split()[-1]} {text}"
        for whose, _, text in (row.partition(" | ") for row in output.splitlines()[1:])
    ]


def test_the_logs_of_a_cluster_on_this_machine(logged: Path, fab: Fab) -> None:
    supervisor, worker, ps = ("supervisor started", "worker:0 ready", "ps:0 ready")
    coordinator = ["coordinator:0 run begins", "coordinator:0     more"]
    run = [f"worker:0 run {RUN} begins", f"ps:0 run {RUN} begins"]
    for flags, expected in (
        ("", [supervisor, worker, ps, *coordinator, *run]),
        ("--lines 2", run),
        ("--role coordinator", coordinator),
        ("--role worker --role supervisor", [supervisor, worker, run[0]]),
        (f"--run {RUN}", [*coordinator, *run]),
        (f"--run runs/{RUN}/ --role worker", run[:1]),
        ("--since 2026-11-22T00:00:04Z", run),
    ):
        assert told(fab(f"deploy logs {flags}").stdout) == expected, flags
    shown = fab("deploy logs --json").warns("cluster local: inventory.yaml", code=0)
    roles = [json.loads(row)["role"] for row in shown.stdout.splitlines()]
    assert roles[:3] == ["supervisor", "worker:0", "ps:0"]
    fab("deploy logs --run another").warns(
        "--run another: expected a run that the logs name, found no line of it; give one such as"
        f" {RUN}",
        code=2,
    )


def test_a_log_that_cannot_be_followed_is_a_line_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileLog, "following", lambda _: ["sh", "-c", "exit 3"])
    place = LogPlace("ps:0", "here", path=tmp_path / "ps-0.log")
    shown: list[Entry] = []
    ClusterLogs([place], LogQuery(20, run=RUN)).follow(
        Fleet([Local("here")], parallel=1), shown.append
    )
    (entry,) = shown
    assert entry.text.startswith(
        "here: cannot follow one of its logs any more, the command ended with 3; "
    )
    assert LogDisplay(8, RUN).wants(entry)
