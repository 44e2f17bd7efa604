"""Rules for every file of tests: it leaves no process, listening port, thread or file behind."""

import logging
import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from core.exported.runtimes import no_telemetry
from tests import costs, ports, tiers
from tests.habits import leaks, needs
from tools import debian_tools


def pytest_configure(config: pytest.Config) -> None:
    """Lets Ctrl-C and a hang-up reach the tests' processes, also under nohup or in a script's
    background.

    Both ignore these signals, which children inherit, so the interruptions under test would never
    arrive. The tests' processes also find the unpacked tools, and report nothing to anybody.
    Hypothesis limits no example's time: nothing here asserts an absolute time. Where `CI` is set it
    draws the same examples each time: a change passes or fails by itself.
    """
    settings.register_profile("house", settings(), deadline=None)
    settings.load_profile("house")
    os.environ["PATH"] = debian_tools.search_path()
    no_telemetry()
    config.add_cleanup(ports.draw_apart())
    _take_tier(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier=fast` takes the tests of one tier; without it pytest takes those that `-m` names."""
    parser.addoption("--tier", choices=tiers.TIERS, help="the tests of this tier: tests/tiers.py")
    parser.addoption("--only-root", action="store_true", help="those that only root can run")
    parser.addoption("--costs-into", type=Path, help="measure for `python -m tests.costs`")


def _take_tier(config: pytest.Config) -> None:
    if tier := config.getoption("--tier"):
        config.option.markexpr = ""
        only_root = config.getoption("--only-root")
        config.pluginmanager.register(tiers.Tier(tier, os.geteuid() == 0, only_root))
    runs_tests = "PYTEST_XDIST_WORKER" in os.environ or not config.option.numprocesses
    if runs_tests and (folder := config.getoption("--costs-into")):
        config.pluginmanager.register(costs.Meter(folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes one line for all tests that were skipped because a tool or root is missing."""
    skipped = [
        report.longrepr for report in terminalreporter.stats.get("skipped", ()) if report.longrepr
    ]
    if line := needs.closing_line(reason[2] for reason in skipped):
        terminalreporter.write_line(line)


def _watched() -> tuple[Path, ...]:
    return tuple({leaks.PROJECT, Path.cwd()})


@pytest.fixture(scope="session", autouse=True)
def session_leaves_nothing_behind() -> Iterator[str]:
    """Marks the tests' processes, and checks again after the fixtures that outlive a test."""
    session = uuid.uuid4().hex
    os.environ[leaks.MARK] = session
    folders = _watched()
    before = leaks.take(folders, session)
    yield session
    left = leaks.left_behind(before, folders, session)
    if left:
        pytest.fail("the test session left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def own_state(session_leaves_nothing_behind: str) -> Iterator[None]:
    """Keeps tests out of the person's own state. Its path is short: sockets lie there."""
    with tempfile.TemporaryDirectory(prefix="state-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing_behind(session_leaves_nothing_behind: str) -> Iterator[None]:
    """Fails the teardown of a file of tests that leaves something behind.

    A look takes some 70 ms, as long as a usual test, so it is taken once a file, not once a case.
    """
    folders = _watched()
    before = leaks.take(folders, session_leaves_nothing_behind)
    yield
    left = leaks.left_behind(before, folders, session_leaves_nothing_behind)
    if left:
        pytest.fail("the tests of this file left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def is_no_reaper() -> Iterator[None]:
    """Takes back what the code of programs sets for its process, after each test."""
    yield
    leaks.reap_for_others_no_more()


@pytest.fixture(autouse=True)
def logs_go_where_they_went() -> Iterator[None]:
    """Takes away the handler of a command that ran in this process: it writes to this test's closed
    output."""
    root = logging.getLogger()
    before = [*root.handlers]
    level = root.level
    yield
    for handler in [*root.handlers]:
        if handler not in before and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
    root.setLevel(level)
