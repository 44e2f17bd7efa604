"""Everything that a deployment ever put on a node, taken away again. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from deploy.cluster.places import (
    CONFIGURATION,
    DEPLOY_STATE,
    ROOT,
    STATE,
    UNIT_FOLDER,
    SharedFolders,
    shared_folders,
)
from deploy.common.command_line import quoted
from deploy.converge.files import FSTAB_BEGIN, FSTAB_END, WITHOUT_OURS
from deploy.converge.subjects import SUBJECTS
from deploy.render import storage

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@dataclass(frozen=True)
class Traces:
    """What to look for. `data`: the shared folder goes too."""

    folders: SharedFolders
    service_uid: int
    data: bool

    @classmethod
    def of(cls, inventory: "Inventory", data: bool) -> Self:
        """For an inventory."""
        return cls(shared_folders(inventory), inventory.deployment.service_uid, data)


def reset_script(traces: Traces, node: str) -> str:
    """Stops and removes everything of ours; prints what was removed, in a line.

    It does not stop at a failure: it removes what it can, and prints what is left at the end. While packages are
    left that could not be removed, the node keeps what it remembers, so that a repeated reset finishes.
    """
    mount = quoted(traces.folders.mount)
    export = quoted(traces.folders.export)
    serves = node == traces.folders.server
    exported = f"rm -f {storage.EXPORTS_PATH}; command -v exportfs >/dev/null && exportfs -ra" if serves else ":"
    data = f"rm -rf {export}/shared {export}/runs; prune {export}/shared" if serves and traces.data else ":"
    undo = "".join(subject.undo for subject in SUBJECTS)
    return f"""\
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
prune() {{ parent=${{1%/*}}; while [ -n "$parent" ]; do
    grep -qxF "$parent" {DEPLOY_STATE}/folders 2>/dev/null || break; rmdir "$parent" 2>/dev/null || break
    parent=${{parent%/*}}; done; }}
problems= notes= unfinished=
units=$(cd {UNIT_FOLDER} && ls -d pscluster-*.service 2>/dev/null | grep -v '@')
jobs=$(systemctl list-units --plain --no-legend 'pscluster-job@*' | awk '{{ print $1 }}')
[ -z "$jobs$units" ] || systemctl disable --quiet --now $jobs $units 2>/dev/null
systemctl stop pscluster.slice 2>/dev/null
for point in {mount}/shared {mount}/runs {mount}; do
    for kind in automount mount; do
        unit=$(systemd-escape -p --suffix=$kind "$point"); systemctl stop "$unit" 2>/dev/null
    done
    ! grep -q " $point " /proc/mounts || umount -l "$point"
done
if grep -qxF '{FSTAB_BEGIN}' /etc/fstab 2>/dev/null; then
    sed -n '/^{FSTAB_BEGIN}$/,$p' /etc/fstab | grep -qxF '{FSTAB_END}' ||
        notes="$notes; /etc/fstab lost our second mark: what came after the first stays there"
    awk {quoted(WITHOUT_OURS)} /etc/fstab >/etc/fstab.pscluster && cat /etc/fstab.pscluster >/etc/fstab
    rm -f /etc/fstab.pscluster
    [ ! -e {DEPLOY_STATE}/no-fstab ] || [ -s /etc/fstab ] || rm -f /etc/fstab
fi
rmdir {mount}/shared {mount}/runs {mount} 2>/dev/null; prune {mount}
{exported}
{data}
rm -f {storage.SETTINGS_PATH}
rm -rf {UNIT_FOLDER}/pscluster-* {UNIT_FOLDER}/pscluster.slice {UNIT_FOLDER}/*.wants/pscluster-* {CONFIGURATION}
{undo}\
for folder in /etc/exports.d /etc/nfs.conf.d; do
    grep -qxF $folder {DEPLOY_STATE}/folders 2>/dev/null && rmdir $folder 2>/dev/null
done
rm -rf {ROOT} {STATE}
if [ -f {DEPLOY_STATE}/masked ]; then
    systemctl unmask --quiet $(cut -d ' ' -f 1 {DEPLOY_STATE}/masked)
    systemctl start $(sed -n 's/ active$//p' {DEPLOY_STATE}/masked) 2>/dev/null
fi
[ -n "$unfinished" ] || rm -rf {DEPLOY_STATE}
systemctl daemon-reload
systemctl reset-failed 'pscluster*' 'nfs-*' 2>/dev/null
left=$(ls -d {ROOT} {STATE} {CONFIGURATION} {UNIT_FOLDER}/pscluster* 2>/dev/null | tr '\\n' ' ')
[ -z "$left" ] || problems="still there: $left; $problems"
[ -z "$problems" ] || {{ echo "$problems" >&2; exit 1; }}
echo "reset${{removed:+; packages removed: $removed}}$notes"
"""
