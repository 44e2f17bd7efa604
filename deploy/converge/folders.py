"""The folders of a node: those of ours, and the note of which ones were there before us. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from deploy.cluster.places import (
    ACCOUNT_HOME,
    CONFIGURATION,
    CURRENT,
    DATA,
    DEPLOY_STATE,
    ENVIRONMENTS,
    JOB_ACCOUNT,
    RELEASES,
    ROOT,
    STATE,
    shared_folders,
)
from deploy.common.command_line import quoted
from deploy.converge.change import Change, Resource, Shell
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.resources import Folder
from deploy.converge.storage import PARTS
from deploy.converge.subject import DeploymentSpec, Found, NodeSpec, Subject
from deploy.rooted.commands import make_folder

HOME = f"{STATE}/{ACCOUNT_HOME}"
JOBS = f"{STATE}/jobs"
NOTED = f"{DEPLOY_STATE}/folders"
_FOLDERS = (ROOT, DATA, ENVIRONMENTS, RELEASES, STATE, HOME, JOBS, CONFIGURATION, DEPLOY_STATE)


@dataclass(frozen=True)
class NotedFolders:
    """Which of the folders that a deployment makes were not there before it, for `reset`."""

    folders: tuple[str, ...]

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Note those that are missing now, unless these very folders were looked at before."""
        path = NOTED
        mark = f"# {' '.join(self.folders)}"
        now = facts.files.get(path)
        if (
            now is not None
            and now.content is not None
            and mark in now.content.decode().splitlines()
        ):
            return ()
        script = (
            f"set -e; {quoted(*make_folder(DEPLOY_STATE, 0o700))}; "
            f"{{ echo {quoted(mark)}; for folder in {quoted(*self.folders)}; do "
            f'[ -d "$folder" ] || echo "$folder"; done; }} >>{path}; [ -e /etc/fstab ] || touch'
            f" {DEPLOY_STATE}/no-fstab"
        )
        steps = (Shell("note which folders are there", script),)
        return (Change("file", path, "create", "what `reset` has to know", steps),)


def _made_folders(spec: DeploymentSpec, node: str) -> tuple[str, ...]:
    folders = spec.folders
    ends = [f"{folders.mount}/shared"]
    of_server = []
    if spec.stores(node):
        ends.append(f"{folders.export}/shared")
        of_server = ["/etc/exports.d", "/etc/nfs.conf.d"]
    parents = [str(parent) for end in ends for parent in PurePosixPath(end).parents]
    return (*dict.fromkeys(path for path in parents if path != "/"), *of_server)


def _notes(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    return (NotedFolders(_made_folders(spec, node)),)


def _folders(spec: DeploymentSpec, node: str, facts: MachineFacts) -> Sequence[Resource]:
    folders = [Folder(path) for path in (ROOT, ENVIRONMENTS, RELEASES, CONFIGURATION)]
    folders.append(Folder(DEPLOY_STATE, mode=0o700))
    # Root's, with folders of the account below: the account cannot put anything in the place of
    # one.
    folders.append(Folder(STATE))
    folders.append(Folder(HOME, mode=0o750, owner=JOB_ACCOUNT))
    # Before the roles start: a cage shows a folder alone that is there.
    folders.append(Folder(DATA))
    if spec.runs_jobs(node):
        folders.append(Folder(JOBS))
    return folders


def _check(spec: NodeSpec, facts: MachineFacts) -> Found:
    export = shared_folders(spec.inventory).export
    for path in (*_FOLDERS, export, *(f"{export}/{part}" for part in PARTS)):
        file = facts.files.get(path)
        if file is not None and file.kind == "link":
            remedy = f"mount that there: `{file.target} {path} none bind 0 0` in /etc/fstab"
            line = f"{path} is a link to {file.target}, not a folder: name that in the inventory"
            yield "problem", "folder", f"{line}, or remove the link and {remedy}"


def _questions(spec: DeploymentSpec, node: str) -> Questions:
    return Questions(files=(*_FOLDERS, CURRENT, NOTED), space=(ENVIRONMENTS,))


NOTED_FOLDERS = Subject("noted folders", "prepare", resources=_notes)
FOLDERS = Subject("folders", "prepare", check=_check, resources=_folders, questions=_questions)
