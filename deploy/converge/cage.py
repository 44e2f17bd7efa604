"""What a node's kernel can forbid a role: the ABI of its Landlock. Pure."""

from collections.abc import Mapping
from typing import Literal

from core.cage.landlock import ASK_VERSION, CREATE_RULESET, Coverage, held_by
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeSpec, Subject

_ASK = (
    "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
    f" print(libc.syscall({CREATE_RULESET}, None, 0, {ASK_VERSION}), ctypes.get_errno())"
)


def _script(questions: Questions) -> str:
    return f"section cage; /usr/bin/python3 -I -c {quoted(_ASK)} 2>/dev/null\n"


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    words = answer.sections.get("cage", "").split()
    if len(words) != 2:  # no Python yet, which another finding is about
        return {"cage": None}
    return {"cage": held_by(int(words[0]), int(words[1]))}


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    held = facts.more.get("cage")
    if isinstance(held, Coverage):
        yield finding(held)


def finding(held: Coverage) -> tuple[Literal["ok", "warning"], str, str]:
    """Return what a check says of a machine's kernel."""
    if held.abi:
        return "ok", "cage", f"roles are caged: {held.line}"
    return "warning", "cage", f"a role may read and write what its account may: {held.reason}"


CAGE = Subject("cage", "prepare", _script, _read, _check)
