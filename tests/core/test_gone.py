"""What earlier versions had is refused with what to use instead, and exists no more."""

import pytest

from core.ground import gone
from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import advice, everywhere
from deploy.commands.registry import COMMANDS
from deploy.commands.tree import run


@pytest.mark.parametrize("key", gone.KEYS)
def test_a_key_of_before_is_refused_with_its_successor(key: str) -> None:
    assert advice(key, InventoryFile) == gone.KEYS[key]
    assert key not in dict(everywhere())


@pytest.mark.parametrize("command", gone.COMMANDS)
def test_a_command_of_before_is_refused_with_its_successor(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--inventory", "inventory.yaml"], "fab") == 2
    assert capsys.readouterr().err == f"fab {command} is gone: {gone.COMMANDS[command]}\n"
    assert command not in COMMANDS


def test_no_command_has_a_flag_of_before() -> None:
    flags = {f"--{flag.spelled}" for action in COMMANDS.values() for flag in action.flags}
    assert flags.isdisjoint(gone.FLAGS)
