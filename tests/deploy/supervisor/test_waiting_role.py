"""A role that waits for a place to start."""

import asyncio
from pathlib import Path

import pytest

from core.inventory import load
from core.inventory.templates import local_inventory
from deploy.cluster.services import RoleState
from deploy.supervisor.processes import LaunchPlan, RestartPolicy
from deploy.supervisor.role import Deadlines, Role


@pytest.mark.parametrize(
    ("requests", "state"),
    [
        (["restart"], RoleState.STARTING),
        (["restart", "hold"], RoleState.STOPPED),
        (["restart", "hold", "restart"], RoleState.STARTING),
    ],
)
@pytest.mark.parametrize("turns", [0, 5])
def test_it_starts_unless_it_is_held_again(
    tmp_path: Path, requests: list[str], state: RoleState, turns: int
) -> None:
    """It was stopped, ready or failed before, and has no process."""

    async def wait() -> RoleState:
        file = tmp_path / "inventory.yaml"
        file.write_text(local_inventory(1, 1))
        task = load(file).task("worker", 0)
        plan = LaunchPlan(task, ("false",), tmp_path / "notify", tmp_path / "log", on_hold=True)
        role = Role(plan, RestartPolicy(), Deadlines(), lambda: None, asyncio.Semaphore(0))
        keeping = asyncio.create_task(role.keep())
        await asyncio.sleep(0)
        assert role.status().state is RoleState.STOPPED
        for request in requests:
            await getattr(role, request)()
            for _ in range(turns):
                await asyncio.sleep(0)
        keeping.cancel()
        return role.status().state

    assert asyncio.run(wait()) is state
