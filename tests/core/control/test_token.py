"""The token of a local cluster: one file, made once, for its account alone."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.control.own_state import (
    NAME,
    VARIABLE,
    adopt_token,
    kept_token,
    make_private,
    own_token,
    read_token,
    state_of,
)
from deploy.common.project import environment_for_any_folder


def test_it_is_made_once_and_readable_by_its_account_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: kept_token(tmp_path), range(50)))
    assert made == {read_token(tmp_path)}
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("content", ["", "short\n", "g" * 64, "a1" * 33])
def test_a_file_that_holds_none_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert read_token(tmp_path) is None
    assert kept_token(tmp_path) == read_token(tmp_path)


def test_a_coordinator_that_was_started_by_hand_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    inventory = tmp_path / "inventory.yaml"
    adopt_token(inventory, "mine")
    assert own_token() is None
    folder = state_of(inventory, "mine")
    make_private(folder)
    token = kept_token(folder)
    adopt_token(inventory, "mine")
    assert own_token() == token
    os.environ[VARIABLE] = "given"
    adopt_token(inventory, "mine")
    assert own_token() == "given"


def test_a_token_that_was_taken_is_inherited_by_no_child() -> None:
    program = (
        "import os, subprocess;"
        "from core.control.own_state import VARIABLE, own_token, token_variables, withdraw_token;"
        "withdraw_token(); withdraw_token();"
        "print(own_token(), token_variables()[VARIABLE], flush=True);"
        "subprocess.run(['env'], check=True)"
    )
    said = subprocess.check_output(
        [sys.executable, "-c", program],
        env={**environment_for_any_folder(), VARIABLE: "a" * 64},
        text=True,
    )
    assert said.splitlines()[0].split() == ["a" * 64] * 2
    assert said.count("a" * 64) == 2
