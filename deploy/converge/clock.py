"""The clock of a node: what it shows, who keeps it, and how far it may be off. Pure."""

from collections.abc import Mapping

from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeSpec, Subject

WRONG_CLOCK_SECONDS = 60.0
DRIFTING_CLOCK_SECONDS = 5.0


def _script(questions: Questions) -> str:
    return """\
section clock; date +%s.%N
section synchronized; timedatectl show -p NTPSynchronized --value 2>/dev/null
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    clock = float(answer.sections["clock"] or 0.0)
    return {
        "clock_offset_seconds": clock - (answer.asked_seconds + answer.answered_seconds) / 2,
        "clock_error_seconds": (answer.answered_seconds - answer.asked_seconds) / 2,
        "clock_synchronized": (
            {"yes": True, "no": False}.get(answer.sections["synchronized"].strip())
        ),
    }


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    apart = max(0.0, abs(facts.clock_offset_seconds) - facts.clock_error_seconds)
    if facts.clock_offset_seconds > 0:
        where = "ahead of"
    else:
        where = "behind"
    line = f"its clock is {abs(facts.clock_offset_seconds):.0f} s {where} this machine's"
    remedy = "`sudo timedatectl set-ntp true` there, with a time server it can reach"
    if apart > WRONG_CLOCK_SECONDS:
        yield "problem", "clock", f"{line}: {remedy}"
    elif apart > DRIFTING_CLOCK_SECONDS:
        yield "warning", "clock", f"{line}: {remedy}"
    elif facts.clock_synchronized is False:
        yield "warning", "clock", f"right now, but nothing keeps it so: {remedy}"


CLOCK = Subject("clock", "prepare", _script, _read, _check)
