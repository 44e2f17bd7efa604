"""The cluster's token on its coordinator's node, and the key of each role beside it. Pure.

docs/control.md says what they open. systemd hands them to the units, so that no account reads them.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.control.client import key_of
from core.control.own_state import is_token
from deploy.cluster.places import CONTROL_KEYS, CONTROL_TOKEN
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Shell, Upload
from deploy.converge.machine_facts import MachineFacts
from deploy.rooted.commands import make_folder

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

MODE = 0o600


@dataclass(frozen=True)
class SecretFile:
    """A file that its owner alone reads, and that no plan shows."""

    path: str
    content: str
    owner: str = "root"

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Write it unless content, owner and mode are as wanted."""
        text = f"{self.content}\n".encode()
        now = facts.files.get(self.path)
        if now is not None and (now.content, now.mode, now.owner) == (text, MODE, self.owner):
            return ()
        if now is None:
            action = "create"
        else:
            action = "change"
        folder = self.path.rpartition("/")[0]
        steps = (
            Shell(f"make {folder}", quoted(*make_folder(folder))),
            Upload(f"write {self.path}", text, self.path, MODE, self.owner),
        )
        return (Change("file", self.path, action, f"a secret, for {self.owner} alone", steps),)


def key_path(task: "Task") -> str:
    """Return where the key of a role lies on its node."""
    return f"{CONTROL_KEYS}/{task.role}-{task.index}"


def paths(tasks: Sequence["Task"], coordinates: bool) -> tuple[str, ...]:
    """Return the secrets of a node with these roles."""
    key_paths = tuple(map(key_path, tasks))
    if coordinates:
        return (CONTROL_TOKEN, *key_paths)
    return key_paths


def kept(facts: MachineFacts, path: str) -> str | None:
    """Return the secret that a node has at `path`; None where it has none."""
    file = facts.files.get(path)
    if file is None or file.content is None:
        return None
    text = file.content.decode("ascii", errors="replace").strip()
    if is_token(text):
        return text
    return None


def token_of(inventory: "Inventory", facts: Mapping[str, MachineFacts]) -> str | None:
    """Return the token that the coordinator's node has, or a new one.

    It is None where that node takes no part: then the others keep what they have.
    """
    coordinator = inventory.of_role("coordinator")[0].node
    if coordinator not in facts:
        return None
    return kept(facts[coordinator], CONTROL_TOKEN) or secrets.token_hex(32)


def key_for(task: "Task", token: str | None, facts: MachineFacts) -> str | None:
    """Return the key that a role has to have; without a token the one that it has."""
    return key_of(token, task.name) or kept(facts, key_path(task))
