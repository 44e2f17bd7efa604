"""Command lines for nodes: what a shell makes of them is the words that went in."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.common.command_line import as_account, checked, quoted, shell

WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20),
    min_size=1,
    max_size=4,
)


@given(WORDS)
def test_a_shell_reads_back_the_same_words(words: list[str]) -> None:
    for line in (
        f"printf '%s\\0' {quoted(*words)}",
        quoted(*shell("printf '%s\\0' \"$@\"", *words)),  # the arguments of a script
    ):
        printed = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
        assert printed.decode().split("\0")[:-1] == words


def test_an_account_s_command_is_no_option_of_sudo() -> None:
    assert as_account(["-s"], root=True) == ["sudo", "-n", "--", "-s"]
    assert as_account(["id"], user="pscluster") == ["sudo", "-n", "-u", "pscluster", "--", "id"]
    assert as_account(["id"]) == ["id"]


def test_a_string_is_no_argument_list_and_a_nul_no_word() -> None:
    with pytest.raises(TypeError, match="expected an argument list, got the string 'rm x'"):
        checked("rm x")
    with pytest.raises(ValueError, match="it holds a NUL byte"):
        quoted("a\0b")
