"""The forecast: what the played cluster takes, computed by hand where that can be done."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cluster.forecast.__main__ import main
from cluster.forecast.costs import MeasuredCosts, add_costs, fitted
from cluster.forecast.outlook import MOST_PLAYED, Outlook, one_pc, outlooks
from cluster.forecast.simulation import Simulation
from core.engine.membership import Membership
from core.engine.workers import Instruction
from core.ground.errors import UsageError
from tests.cluster.forecast.played import ASSUMED, costs

WIRE = 0.003
"""Seconds of a pull and a push on the links of ASSUMED."""


def outlook(measured: MeasuredCosts, nodes: int, **assumed: float) -> Outlook:
    """The forecast for one number of nodes."""
    (found,) = outlooks(measured, None, [nodes], replace(ASSUMED, **assumed))
    return found


def test_one_worker_does_one_thing_after_the_other() -> None:
    found = outlook(costs(), 1, latency=1.0)
    update = 0.003 + 0.002 + 0.1 + WIRE + 4 * 0.001
    assert found.windows_a_second == pytest.approx(100 / update)
    assert found.seconds == pytest.approx(200_000 * update)
    assert (found.efficiency, found.limit) == (1.0, "workers")
    assert found.euros == pytest.approx(5.0 * found.seconds / 3.6e6 * 0.3)
    assert (found.by, found.extrapolated) == ("simulation", False)


def slow(seconds: float) -> MeasuredCosts:
    """Steps that take a worker so long."""
    runs = tuple(replace(run, updates=1, seconds=seconds) for run in costs("sync").runs)
    return replace(costs("sync"), runs=runs)


def test_calls_after_which_a_worker_counts_as_lost_are_refused() -> None:
    with pytest.raises(UsageError, match=r"its calls take minutes.*a faster --link"):
        outlook(slow(1e6), 4)


def test_a_long_call_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    tick = Membership.tick

    def counted(membership: Membership, now: float) -> list[Instruction]:
        looks.append(now)
        return tick(membership, now)

    monkeypatch.setattr(Membership, "tick", counted)
    assert outlook(slow(50.0), 1).limit == "workers"
    assert 100 < len(looks) < 5000, "every half second would be 10,000"


def test_the_coordinator_does_one_call_after_the_other() -> None:
    found = outlook(costs(), 64)
    assert found.windows_a_second == pytest.approx(100 / 0.066, rel=0.03)
    assert (found.limit, found.extrapolated) == ("coordinator", True)


def test_many_servers_share_an_update_and_one_is_a_limit() -> None:
    slow = tuple(replace(run, server_seconds=run.updates * 0.09) for run in costs().runs)
    measured = costs(runs=slow)
    one = outlook(measured, 8)
    assert one.limit == "server"
    assert one.windows_a_second == pytest.approx(100 / 0.09, rel=0.03)
    (four,) = outlooks(measured, 4, [8], ASSUMED)
    assert four.windows_a_second > 3 * one.windows_a_second
    assert outlooks(measured, 4, [1], ASSUMED)[0].extrapolated, "on servers that were not there"


def test_a_narrow_link_of_the_server_is_a_limit() -> None:
    found = outlook(costs(), 8, link=0.8)
    assert found.limit == "link"
    assert found.windows_a_second == pytest.approx(100 / 0.2, rel=0.02)


def test_a_step_waits_for_its_slowest_part() -> None:
    cheap = tuple(
        replace(run, coordinator_seconds=1e-3, server_seconds=1e-3) for run in costs("sync").runs
    )
    steady = outlook(costs("sync", runs=cheap), 4, link=1e5)
    noisy = outlook(costs("sync", runs=cheap, spread=0.3), 4, link=1e5)
    assert steady.efficiency > 0.9
    assert noisy.windows_a_second < 0.9 * steady.windows_a_second
    assert outlook(costs(spread=0.3), 8).windows_a_second == pytest.approx(
        outlook(costs(), 8).windows_a_second, rel=0.1
    ), "in async nobody waits for it"


def test_a_step_is_dealt_out_by_the_policy() -> None:
    # Two parts: each call 1 ms on the coordinator and the server, a step 2 ms and 1 ms more.
    found = outlook(costs("sync"), 2)
    second = 0.003 / 2 + 0.001 / 2  # when the coordinator has sent the second part
    step = second + 0.05 + WIRE + 0.002 + 0.003
    assert 100 / found.windows_a_second == pytest.approx(step, rel=0.05)


def test_workers_without_a_slot_add_nothing() -> None:
    measured = costs("sync", slots=4)
    four, many = outlooks(measured, None, [4, 400], ASSUMED)
    assert many.windows_a_second == four.windows_a_second
    assert (many.limit, many.watts) == ("slots", 2000.0)


def test_all_workers_wait_at_the_end_of_an_epoch() -> None:
    # Five updates on four workers: one of them does two.
    alone, four = outlooks(costs(updates_an_epoch=5), None, [1, 4], ASSUMED)
    assert four.efficiency == pytest.approx(5 / 4 / 2, rel=0.1)
    assert alone.windows_a_second == pytest.approx(outlook(costs(), 1).windows_a_second)


@pytest.mark.parametrize("mode", ["ssp", "local"])
def test_the_bound_goes_on_where_the_simulation_ends(mode: str) -> None:
    last, first = outlooks(costs(mode), None, [MOST_PLAYED, MOST_PLAYED + 1], ASSUMED)
    assert (last.by, first.by) == ("simulation", "bound")
    assert first.windows_a_second == pytest.approx(last.windows_a_second, rel=0.03)
    assert first.limit == last.limit == "coordinator"
    fast = tuple(
        replace(run, coordinator_seconds=1e-6, server_seconds=1e-6) for run in costs().runs
    )
    free = outlook(costs(mode, runs=fast, updates_an_epoch=10**9), MOST_PLAYED + 1, link=1e6)
    assert free.limit == "workers"
    assert free.efficiency == pytest.approx(1.0, rel=0.02)


def test_ten_thousand_nodes_exchange_among_themselves() -> None:
    four, many = outlooks(costs("allreduce"), None, [4, 10_000], ASSUMED)
    step = 0.006 + 0.1 / 4 + 0.003 * 3 / 4
    assert 100 / four.windows_a_second == pytest.approx(step)
    assert (many.limit, many.by) == ("coordinator", "simulation")


def test_failures_cost_the_absence_and_what_is_begun_again() -> None:
    def lost(mode: str, nodes: int) -> float:
        whole = outlook(costs(mode), nodes)
        broken = outlook(costs(mode), nodes, failures=24.0, recovery=360.0)
        return 1 - broken.windows_a_second / whole.windows_a_second

    assert lost("async", 4) == pytest.approx(0.1)
    assert 0.1 < lost("sync", 4) < 0.101
    assert lost("allreduce", 4) == pytest.approx(0.4), "every one ends the run for all"


def test_an_overdue_worker_returns_and_each_update_is_complete_once() -> None:
    # A call takes longer than its deadline: it is suspected, and another worker computes it too.
    measured = costs(spread=1.5, runs=(replace(costs().runs[0], seconds=2000.0),))
    played = Simulation(measured, fitted(measured), ASSUMED.links, 8)
    played.run(200, 1000)
    assert len(played.complete) == 200
    assert played.complete == sorted(played.complete)


def test_one_pc_is_as_measured() -> None:
    pc = one_pc(costs(), ASSUMED)
    assert (pc["windows_a_second"], pc["seconds"]) == pytest.approx((500.0, 40_000.0))
    assert pc["euros"] == pytest.approx(50 * 40_000 / 3.6e6 * 0.3)


def test_both_shapes_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    add_costs(file, costs(spread=0.1))

    def ask(*, as_json: bool, mode: str | None = None) -> int:
        request: dict[str, Any] = {"costs": str(file), "entry": [None, mode, None]}
        request |= {"nodes": [1, 16, 200]}
        request |= {"servers": None, "assumed": asdict(ASSUMED), "json": as_json}
        return main(json.dumps(request))

    assert ask(as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(row["nodes"], row["extrapolated"]) for row in shown["nodes"]] == [
        (1, False),
        (16, True),
        (200, True),
    ]
    assert ask(as_json=False) == 0
    text = capsys.readouterr().out
    for row in shown["nodes"]:
        assert f"{row['windows_a_second']:,.0f}  " in text
    assert text.count("extrapolated") == 2
    assert text.count("simulation") == 2
    assert "bound" in text.splitlines()[-1]
    assert ask(as_json=False, mode="local") == 2
    assert "no costs of local, only of: digits async fp32" in capsys.readouterr().err
