"""What a node's kernel can forbid a role and a job: the ABI of its Landlock. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from core.cage.calls import JOB, CallRights, coverage_under, what_holds
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
    numbers = answer.sections.get("cage", "").split()
    if len(numbers) != 2:  # no Python yet, which another finding is about
        return {"cage": None}
    return {"cage": held_by(int(numbers[0]), int(numbers[1]))}


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    coverage = facts.more.get("cage")
    if isinstance(coverage, Coverage):
        yield finding(coverage, {"roles": CallRights(), "jobs": JOB})


def finding(
    coverage: Coverage, kinds: Mapping[str, CallRights] = MappingProxyType({"roles": CallRights()})
) -> tuple[Literal["ok", "warning"], str, str]:
    """Return what a check says of a machine's kernel: what it holds of these kinds of processes."""
    if not coverage.abi:
        return (
            "warning",
            "cage",
            f"a role may read and write what its account may: {coverage.reason}",
        )
    lines = (
        f"{name} are {what_holds(coverage_under(rights, coverage), rights).line}"
        for name, rights in kinds.items()
    )
    return "ok", "cage", "; ".join(lines)


CAGE = Subject("cage", "prepare", _script, _read, _check)
