import getpass
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.commands import action
from tests.deploy.over_ssh.sshd import needs_sudo
from tests.deploy.played_machines import Machine, running_machines
from tests.deploy.typed import Fab, Processes
from tests.habits import needs


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """The processes that commands run in the place of work of their own."""
    made = Processes()
    monkeypatch.setattr(action, "subprocess", made)
    return made


@pytest.fixture
def machines_with(tmp_path: Path, fab: Fab) -> Iterator[Callable[..., dict[str, Machine]]]:
    """Makes the cluster `three` of nodes with these roles, each with two releases.

    They run the second one, and their keys are pinned.
    """
    needs_sudo()
    needs.mount_namespace()
    with ExitStack() as stack:

        def made(releases: tuple[str, str], *roles: str) -> dict[str, Machine]:
            running = stack.enter_context(running_machines(tmp_path / "machines", len(roles)))
            lines = [
                "{schema: 1, cluster: three, connection: ssh, storage: {server: pi-1},",
                f'ssh: {{user: {getpass.getuser()}, key: "{running[0][1].user_key}"}}, nodes: [',
            ]
            machines = {}
            for number, (given, (machine, server)) in enumerate(
                zip(roles, running, strict=True), 1
            ):
                name = f"pi-{number}"
                login = f"{{address: 127.0.0.1, port: {server.port}}}"
                lines.append(
                    f"{{name: {name}, address: 10.77.0.{number}, ssh: {login}, roles: {given}}},"
                )
                machine.deploy(*releases)
                machines[name] = machine
            (tmp_path / "inventory.yaml").write_text("\n".join([*lines, "]}\n"]))
            fab("deploy trust --yes").says()
            fab("deploy restart").says()
            return machines

        yield made
