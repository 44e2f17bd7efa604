"""A login shell that does not run our command is named; disk and machine are not blamed."""

from typing import Any

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.connector import CommandResult
from deploy.cluster.fleet import Local
from deploy.common.command_line import Words, quoted
from deploy.converge.machine_facts import Questions
from deploy.converge.survey import machine_facts


class LoginShell(Local):
    """A node whose login shell reads `lines` first, as bash reads ~/.bashrc for sshd."""

    def __init__(self, lines: str) -> None:
        super().__init__("rpi02")
        self._lines = lines

    def run(self, command_line: Words, **how: Any) -> CommandResult:
        return super().run(["bash", "-c", f"{self._lines}\n{quoted(*command_line)}"], **how)


@pytest.mark.parametrize(
    "lines",
    [
        "exec bash",
        "exit 0",
        "exit 3",
        "cat >/dev/null",
        "read line",
        "echo hello; exec sh -s other",
    ],
)
def test_a_login_shell_that_does_not_run_our_command_is_named(lines: str) -> None:
    with pytest.raises(
        ClusterError, match=r"login shell of .* does not run what fab sends"
    ) as lost:
        machine_facts(LoginShell(lines), Questions())
    assert "disk" not in str(lost.value)


def test_an_account_of_sudo_that_is_not_root_is_named() -> None:
    as_another = 'sh() { command sh "$@" | sed "s/^0 /1000 /"; }'
    with pytest.raises(ClusterError, match=r"expected that sudo runs commands as root, got uid 1"):
        machine_facts(LoginShell(as_another), Questions())
