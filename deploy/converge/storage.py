"""The storage server's exports, settings and disk, and the folders of ours on each node. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

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
    SharedFolders,
    shared_folders,
)
from deploy.common.command_line import quoted
from deploy.converge.machine_facts import MachineFacts, Questions, Texts
from deploy.converge.resources import RunningUnit, keep_file, keep_folder, keep_masked, written
from deploy.converge.subject import (
    DRIFT,
    Change,
    Changes,
    DeploymentSpec,
    Found,
    Shell,
    Subject,
)
from deploy.render import storage
from deploy.render.network import firewall_mark
from deploy.rooted.commands import make_folder, write_file

if TYPE_CHECKING:
    from core.inventory import Inventory


NOTE = f"{DEPLOY_STATE}/storage"
"""The exported folder and the mark that lay in it at the first start: a disk that is missing has no
mark."""
PARTS = ("shared", "data", "runs")
NFS_SERVER_UNIT = "nfs-server.service"


def mark_of(folders: SharedFolders) -> str:
    """Return the path of the file that an empty folder in the place of the shared one lacks."""
    return f"{folders.export}/.pscluster-storage"


def keep_exports(facts: MachineFacts, path: str, text: str) -> Changes:
    """Write the storage server's exports, and export again where the running server lacks some.

    Never a restart: it would stall writers for up to ninety seconds.
    """
    now = facts.files.get(path)
    expected_entries = clients(text.splitlines())
    exports_all = expected_entries <= clients(facts.exports)
    if now is not None and now.content == text.encode() and exports_all:
        return
    detail = f"{len(expected_entries)} entries, one for each client and folder"
    again = Shell(
        "export the folders",
        export_again(expected_entries),
        hint=f"`sudo exportfs -ra` there says more about {path}",
    )
    yield written("export", path, text.encode(), facts, detail, then=[again])


def _foreign_exports(folders: SharedFolders, facts: MachineFacts) -> Iterator[str]:
    """Yield each entry in force for the shared folder that is not as our file there has it.

    Another file, or `exportfs` by hand, has added it, or has given a node other access.
    """
    own_options = {
        entry[:2]: entry[2] for entry in _entries(facts.text(storage.EXPORTS_PATH).splitlines())
    }
    export = PurePosixPath(folders.export)
    for folder, client, options in _entries(facts.exports):
        within = PurePosixPath(folder).is_relative_to(export)
        around = "rw" in options and export.is_relative_to(folder)
        if (within or around) and not own_options.get((folder, client), {"?"}) <= options:
            yield f"{folder} to {client}"


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield folder, client and options of each entry."""
    for folder, *entries in map(str.split, filter(str.strip, lines)):
        for entry in entries:
            if not folder.startswith("#"):
                client, _, options = entry.rstrip(")").partition("(")
                yield folder, client, {*options.split(",")}


def export_again(expected_entries: Iterable[tuple[str, str]]) -> str:
    """Return shell that exports again, and fails when a wanted folder and client is missing then.

    The exit code of `exportfs -ra` also speaks for the entries of the node's owner.
    """
    entries = [f"{folder} {client}" for folder, client in sorted(expected_entries)]
    return (
        'said=$(exportfs -ra 2>&1); known=$(exportfs -s | awk \'{ sub(/[(].*/, "", $2); print $1,'
        " $2 }'); "
        f'for entry in {quoted(*entries)}; do printf \'%s\\n\' "$known" | grep -qxF -e "$entry" || '
        '{ printf \'%s\\n\' "$said" "$entry is not exported" >&2; exit 1; }; done'
    )


def clients(lines: Iterable[str]) -> set[tuple[str, str]]:
    """Return folder and client of each entry."""
    export_lines = [line.split() for line in lines if not line.startswith("#")]
    return {
        (folder, client.partition("(")[0])
        for folder, *clients in export_lines
        for client in clients
    }


def server_settings(settings: str) -> Shell:
    """Return the step that applies nfs.conf.

    A restart stalls writers, and is for a server without exports alone.
    """
    threads = settings.partition("threads=")[2].split()[0]
    script = (
        "systemctl -q is-active nfs-server.service || exit 0; "
        'if [ -z "$(exportfs -s)" ]; then systemctl restart nfs-server.service; else rpc.nfsd'
        f" {quoted(threads)}; fi"
    )
    return Shell("apply the NFS server's settings", script, 120.0)


def keep_disk_noted(facts: MachineFacts, folders: SharedFolders) -> Changes:
    """Mark the folder that is exported at the first start, and note the mark.

    Once for each path of the inventory.
    """
    if _noted(folders, facts):
        return
    mark = quoted(mark_of(folders))
    script = (
        f"set -e; [ -s {mark} ] || {quoted(*write_file(mark_of(folders)))}"
        " </proc/sys/kernel/random/uuid; "
        f'echo {quoted(folders.export)} "$(cat {mark})" >{NOTE}.new; mv -f {NOTE}.new'
        f" {NOTE}"
    )
    yield Change(
        "file",
        NOTE,
        "create",
        "a missing disk is noticed by it",
        (Shell("note which disk holds the shared folder", script),),
    )


def _noted(folders: SharedFolders, facts: MachineFacts) -> str:
    """The mark that was noted for this folder, empty without one."""
    export, _, mark = facts.text(NOTE).partition(" ")
    if export == folders.export:
        return mark
    return ""


def disk_trouble(inventory: "Inventory", node: str, facts: MachineFacts) -> Iterator[str]:
    """Yield why a node lacks the disk of one of our folders.

    It is a trouble too that it exports another folder than at the first start.
    """
    serves = inventory.storage is not None and inventory.storage.server == node
    own_folders = [ROOT, STATE, DEPLOY_STATE]
    if serves:
        own_folders.append(shared_folders(inventory).export)
    for point in _points_of_fstab(facts):
        on_it = [folder for folder in own_folders if _holds(point, folder)]
        if on_it and point not in facts.mounts:
            yield (
                f"{point} of /etc/fstab is not mounted, and {', '.join(on_it)} would lie on"
                " it: connect its disk, and reboot this node"
            )
            return
    if serves:
        yield from _another_folder(shared_folders(inventory), facts)


def _another_folder(folders: SharedFolders, facts: MachineFacts) -> Iterator[str]:
    noted = _noted(folders, facts)
    if noted and noted != facts.text(mark_of(folders)):
        yield (
            f"{folders.export} is not the folder of the first start, whose mark it lacks: connect"
            f" the disk that has it, and reboot this node; `sudo rm {NOTE}` there lets the next"
            " start take what is there now"
        )


def _points_of_fstab(facts: MachineFacts) -> list[str]:
    entries = [line.split() for line in facts.fstab if not line.startswith("#")]
    return [
        fields[1].replace("\\040", " ")
        for fields in entries
        if len(fields) > 2 and fields[1].startswith("/")
    ]


def _holds(point: str, path: str) -> bool:
    return point != "/" and PurePosixPath(path).is_relative_to(point)


def _storage_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    inventory = spec.inventory
    yield from (("problem", "storage", line) for line in disk_trouble(inventory, spec.name, facts))
    if inventory.storage is None or inventory.storage.server != spec.name:
        return
    folders = shared_folders(inventory)
    foreign = [*_foreign_exports(folders, facts)]
    if foreign:
        yield (
            "problem",
            DRIFT,
            f"{', '.join(foreign[:3])} is exported, and not by {storage.EXPORTS_PATH}: take"
            " that out of /etc/exports and /etc/exports.d, and `sudo exportfs -ra` there",
        )
    own_folders = {f"{folders.export}/{part}" for part in PARTS}
    foreign_folders = sorted({folder for folder, _ in clients(facts.exports)} - own_folders)
    settings = facts.files.get(storage.SETTINGS_PATH)
    changes = []
    if settings is None or settings.content != storage.server_settings(inventory).encode():
        changes.append("by NFS 4 alone, without rpcbind")
    if inventory.deployment.firewall and facts.firewall != firewall_mark(inventory, spec.name):
        changes.append("by the inventory's nodes alone (port 2049)")
    mounted = sorted(point for point, mount in facts.mounts.items() if mount.kind == "nfs")
    if mounted and any(
        (unit := facts.unit(name)) and unit.running for name in storage.OLD_NFS_UNITS
    ):
        yield (
            "warning",
            "exports",
            f"its owner mounts {', '.join(mounted)} with NFS 3, and a start masks rpcbind and"
            " rpc.statd here: mount with NFS 4, or make another node the storage server",
        )
    if foreign_folders and changes:
        yield (
            "warning",
            "exports",
            f"its owner exports {', '.join(foreign_folders)}, reached after a start"
            f" {' and '.join(changes)}: if others need it, make another node the storage"
            " server, or use an export of another machine (`storage.external`)",
        )


def _nfs_server(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    """Yield the NFS server's settings, which come before its package.

    The package starts the server, which should come up as it is to stay.
    """
    if spec.stores:
        settings = storage.server_settings(spec.inventory)
        apply = (server_settings(settings),)
        yield from keep_file(facts, storage.SETTINGS_PATH, settings.encode(), then=apply)
        yield from keep_masked(facts, storage.OLD_NFS_UNITS)


def _plan_storage(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if not spec.stores:
        return
    export = spec.folders.export
    yield from keep_folder(facts, export)
    yield from keep_folder(facts, f"{export}/shared")
    yield from keep_folder(facts, f"{export}/data", owner=JOB_ACCOUNT)
    yield from keep_folder(facts, f"{export}/runs", owner=JOB_ACCOUNT)
    yield from RunningUnit(NFS_SERVER_UNIT).changes(facts)
    exports = storage.exports(spec.inventory, spec.folders)
    yield from keep_exports(facts, storage.EXPORTS_PATH, exports)
    yield from keep_disk_noted(facts, spec.folders)


def _storage_questions(spec: DeploymentSpec) -> Questions:
    folders = spec.folders
    questions = Questions(
        files=(storage.EXPORTS_PATH, storage.SETTINGS_PATH),
        units=(NFS_SERVER_UNIT, *storage.OLD_NFS_UNITS),
        packages=("nfs-common", "nfs-kernel-server"),
    )
    # Elsewhere, and with an external export, the same path may lie below the mount.
    if not spec.stores:
        return questions
    exported = tuple(f"{folders.export}/{part}" for part in PARTS)
    return replace(
        questions,
        files=(*questions.files, folders.export, mark_of(folders), NOTE, *exported),
        bound=exported,
        space=(folders.export,),
        unfinished=folders.published_kinds,
    )


NFS_SERVER = Subject("NFS server", "prepare", plan=_nfs_server)
STORAGE = Subject(
    "storage",
    "storage",
    check=_storage_findings,
    plan=_plan_storage,
    questions=_storage_questions,
)


HOME = f"{STATE}/{ACCOUNT_HOME}"
JOBS = f"{STATE}/jobs"
NOTED = f"{DEPLOY_STATE}/folders"
_FOLDERS = (ROOT, DATA, ENVIRONMENTS, RELEASES, STATE, HOME, JOBS, CONFIGURATION, DEPLOY_STATE)


def keep_folders_noted(facts: MachineFacts, folders: Sequence[str]) -> Changes:
    """Note which folders that a deployment makes were not there before it, for `reset`.

    Not if these very folders were looked at before.
    """
    mark = f"# {' '.join(folders)}"
    now = facts.files.get(NOTED)
    if now is not None and now.content is not None and mark in now.content.decode().splitlines():
        return
    script = (
        f"set -e; {quoted(*make_folder(DEPLOY_STATE, 0o700))}; "
        f"{{ echo {quoted(mark)}; for folder in {quoted(*folders)}; do "
        f'[ -d "$folder" ] || echo "$folder"; done; }} >>{NOTED}; [ -e /etc/fstab ] || touch'
        f" {DEPLOY_STATE}/no-fstab"
    )
    yield Change(
        "file",
        NOTED,
        "create",
        "what `reset` has to know",
        (Shell("note which folders are there", script),),
    )


def _made_folders(spec: DeploymentSpec) -> Texts:
    folders = spec.folders
    ends = [f"{folders.mount}/shared"]
    of_server = []
    if spec.stores:
        ends.append(f"{folders.export}/shared")
        of_server = ["/etc/exports.d", "/etc/nfs.conf.d"]
    parents = [str(parent) for end in ends for parent in PurePosixPath(end).parents]
    return (*dict.fromkeys(path for path in parents if path != "/"), *of_server)


def _notes(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    return keep_folders_noted(facts, _made_folders(spec))


def _folders(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    for path in (ROOT, ENVIRONMENTS, RELEASES, CONFIGURATION):
        yield from keep_folder(facts, path)
    yield from keep_folder(facts, DEPLOY_STATE, 0o700)
    # Root's, with folders of the account below: the account cannot put anything in the place of
    # one.
    yield from keep_folder(facts, STATE)
    yield from keep_folder(facts, HOME, 0o750, JOB_ACCOUNT)
    # Before the roles start: a cage shows a folder alone that is there.
    yield from keep_folder(facts, DATA)
    if spec.runs_jobs:
        yield from keep_folder(facts, JOBS)


def _folder_findings(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    export = shared_folders(spec.inventory).export
    for path in (*_FOLDERS, export, *(f"{export}/{part}" for part in PARTS)):
        file = facts.files.get(path)
        if file is not None and file.kind == "link":
            yield (
                "problem",
                "folder",
                f"{path} is a link to {file.target}, not a folder: name that in the"
                f" inventory, or remove the link and mount that there: `{file.target} {path}"
                " none bind 0 0` in /etc/fstab",
            )


NOTED_FOLDERS = Subject("noted folders", "prepare", plan=_notes)
FOLDERS = Subject(
    "folders",
    "prepare",
    check=_folder_findings,
    plan=_folders,
    questions=lambda spec: Questions(files=(*_FOLDERS, CURRENT, NOTED), space=(ENVIRONMENTS,)),
)
