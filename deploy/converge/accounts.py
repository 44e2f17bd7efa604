"""The service account of a node: its uid and gid, and the copies of the account files that `reset` puts back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.cluster import places
from deploy.cluster.places import DEPLOY_STATE, SERVICE_USER, STATE
from deploy.common.command_line import quoted
from deploy.common.texts import filled
from deploy.converge.change import Change, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import Found, NodeAnswer, NodeWish, Subject

_FILES = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
KEEP_COPIES = (
    f"set -e; [ -d {DEPLOY_STATE}/account ] || {{ mkdir -p {DEPLOY_STATE}/account; "
    f"for file in {quoted(*_FILES)}; do "
    f"[ ! -e /etc/$file- ] || cp -p /etc/$file- {DEPLOY_STATE}/account/; done; }}; "
)
"""A new account, also a package's, leaves copies of the files before it (passwd-): `reset` puts the first back."""


def _undo() -> str:
    return filled("converge/accounts_undo.sh", places=places, files=_FILES)


def _script(questions: Questions) -> str:
    return f"""\
section users; getent passwd {SERVICE_USER}
section uid; getent passwd {questions.service_uid:d}
section gid; getent group {questions.service_uid:d}
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    fields = answer.sections["users"].strip().split(":")
    return {
        "users": {fields[0]: (int(fields[2]), int(fields[3]))} if len(fields) > 3 else {},
        "uid_owner": answer.sections["uid"].strip().split(":")[0] or None,
        "gid_owner": answer.sections["gid"].strip().split(":")[0] or None,
    }


def _check(wish: NodeWish, facts: MachineFacts) -> Found:
    uid = wish.inventory.deployment.service_uid
    present = facts.users.get(SERVICE_USER)
    if present is not None and present != (uid, uid):
        line = f"the account {SERVICE_USER} has uid {present[0]} and gid {present[1]} here, not {uid}"
        yield "problem", "account", f"{line}: `sudo userdel {SERVICE_USER}` there, or change `deployment.service_uid`"
    for kind, owner in (("uid", facts.uid_owner), ("gid", facts.gid_owner)):
        if owner not in (None, SERVICE_USER):
            line = f"{kind} {uid} belongs to {owner} here"
            yield "problem", "account", f"{line}: choose one that is free everywhere as `deployment.service_uid`"


@dataclass(frozen=True)
class ServiceUser:
    """The account of all processes, with the same uid and gid everywhere; it has no login."""

    uid: int

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Create it. The check has seen that the uid is free."""
        if facts.users.get(SERVICE_USER) == (self.uid, self.uid):
            return ()
        script = KEEP_COPIES + (
            f"getent group {SERVICE_USER} >/dev/null || groupadd --system --gid {self.uid:d} {SERVICE_USER}; "
            f"useradd --system --uid {self.uid:d} --gid {self.uid:d} --no-create-home --home-dir {STATE} "
            f"--shell /usr/sbin/nologin {SERVICE_USER}"
        )
        detail = f"uid and gid {self.uid}"
        return (Change("user", SERVICE_USER, "create", detail, (Shell(f"add the account {SERVICE_USER}", script),)),)


ACCOUNTS = Subject("accounts", "prepare", _script, _read, _check, undo=_undo)
