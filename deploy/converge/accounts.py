"""The accounts of a node: their numbers, and the files that `reset` puts back. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploy.cluster import places
from deploy.cluster.places import ACCOUNTS, DEPLOY_STATE, STATE, account_numbers
from deploy.common.command_line import filled, quoted
from deploy.converge.change import Change, Resource, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import DeploymentSpec, Found, NodeAnswer, NodeSpec, Subject

_FILES = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
KEEP_COPIES = (
    f"set -e; [ -d {DEPLOY_STATE}/account ] || {{ mkdir -p {DEPLOY_STATE}/account; "
    f"for file in {quoted(*_FILES)}; do "
    f"[ ! -e /etc/$file- ] || cp -p /etc/$file- {DEPLOY_STATE}/account/; done; }}; "
)
"""A new account, also a package's, leaves copies of the files before it (passwd-): `reset` puts the
first back."""


def _undo() -> str:
    return filled("converge/accounts_undo.sh", accounts=ACCOUNTS, places=places, files=_FILES)


def _script(questions: Questions) -> str:
    first = questions.service_uid
    numbers = quoted(*range(first, first + len(ACCOUNTS)))
    return f"""\
section users; getent passwd {quoted(*ACCOUNTS)}
section uid; getent passwd {numbers}
section gid; getent group {numbers}
section powers
for account in {quoted(*ACCOUNTS)}; do
    can=$(getent passwd "$account" | sed 's/.*://' | grep -vE '/(nologin|false)$')
    for group in $(id -Gn "$account" 2>/dev/null); do
        [ "$group" = "$account" ] || can="$can group:$group"
    done
    [ -z "$can" ] || echo "$account" $can
done
"""


def _read(answer: NodeAnswer) -> Mapping[str, object]:
    return {
        "users": {one[0]: (int(one[2]), int(one[3])) for one in _entries(answer, "users")},
        "uid_owners": {int(one[2]): one[0] for one in _entries(answer, "uid")},
        "gid_owners": {int(one[2]): one[0] for one in _entries(answer, "gid")},
        "powers": {
            name: powers[:200]
            for name, _, powers in (
                line.partition(" ") for line in answer.sections.get("powers", "").splitlines()
            )
        },
    }


def _entries(answer: NodeAnswer, section: str) -> Iterator[Sequence[str]]:
    """Yield the fields of each line of passwd or group."""
    for line in answer.sections[section].split("\n"):
        fields = line.split(":")
        if len(fields) > 3:
            yield fields


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    remedy = (
        "choose a number that is free everywhere, with the three after it, as"
        " `deployment.service_uid`"
    )
    for name, uid in account_numbers(spec.inventory).items():
        present = facts.users.get(name)
        if present is not None and present != (uid, uid):
            line = f"the account {name} has uid {present[0]} and gid {present[1]} here, not {uid}"
            way = f"`sudo userdel {name}` there, or change `deployment.service_uid`"
            yield "problem", "account", f"{line}: {way}"
        for kind, owners in (("uid", facts.uid_owners), ("gid", facts.gid_owners)):
            owner = owners.get(uid, name)
            if owner != name:
                yield (
                    "problem",
                    "account",
                    f"{kind} {uid} of {name} belongs to {owner} here: {remedy}",
                )


@dataclass(frozen=True)
class NodeAccount:
    """The account of one kind of process, with the same uid and gid everywhere; without a login."""

    name: str
    uid: int

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Create it, or take its powers. The check has seen that the uid is free."""
        if facts.users.get(self.name) == (self.uid, self.uid):
            if self.name not in facts.powers:
                return ()
            script = KEEP_COPIES + quoted(
                *("usermod", "--shell", "/usr/sbin/nologin", "--groups", "", self.name)
            )
            steps = (Shell(f"take the powers of the account {self.name}", script),)
            return (
                Change(
                    "user",
                    self.name,
                    "change",
                    f"it has {facts.powers[self.name]}",
                    steps,
                ),
            )
        script = (
            KEEP_COPIES + f"getent group {quoted(self.name)} >/dev/null || groupadd --system"
            f" --gid {self.uid:d} {quoted(self.name)}; useradd --system --uid {self.uid:d}"
            f" --gid {self.uid:d} --no-create-home --home-dir {STATE} --shell /usr/sbin/nologin"
            f" {quoted(self.name)}"
        )
        steps = (Shell(f"add the account {self.name}", script),)
        return (Change("user", self.name, "create", f"uid and gid {self.uid}", steps),)


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    return [NodeAccount(name, uid) for name, uid in account_numbers(spec.inventory).items()]


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(service_uid=spec.inventory.deployment.service_uid)


NODE_ACCOUNTS = Subject(
    "accounts", "prepare", _script, _read, _check, _resources, _undo, _questions
)
