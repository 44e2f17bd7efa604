"""The signer that a node accepts releases of: pinned at the first deployment, handed over later."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.cluster.places import SIGNERS
from deploy.converge.change import Change, Resource, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import DeploymentSpec, Subject
from deploy.release.scripts import pin_signer
from deploy.release.signing import Signatures

VERIFIER = "openssh-client"
"""Debian's package with ssh-keygen."""


@dataclass(frozen=True)
class PinnedSigner:
    """The file of allowed signers, which only root writes."""

    signatures: Signatures

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Pin the signer; the node refuses another one than it has, unless that hands over."""
        now = facts.files.get(SIGNERS)
        if now is not None and now.content == f"{self.signatures.allowed}\n".encode():
            return ()
        action = "change"
        if now is None:
            action = "create"
        script = pin_signer(self.signatures.allowed, self.signatures.handover)
        steps = (Shell("pin the signer of releases", script),)
        return (Change("file", SIGNERS, action, "who signs releases", steps),)


def _resources(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    if not spec.signatures.allowed or spec.environment(node, facts) is None:
        return ()
    return (PinnedSigner(spec.signatures),)


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(files=(SIGNERS,), packages=(VERIFIER,))


SIGNER = Subject("signer", "code", resources=_resources, questions=_questions)
