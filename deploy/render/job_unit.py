"""`pscluster-job@.service`: a job on the coordinator's node, by its id. Pure."""

from typing import TYPE_CHECKING

from cluster.control.door import MOST_DESCRIPTORS
from deploy.cluster.places import ACCOUNT_HOME, UNIT_FOLDER, NodePlaces, shared_folders
from deploy.render.roles import HARDENING

if TYPE_CHECKING:
    from cluster.inventory import Inventory

JOB_UNIT = "pscluster-job@.service"
PATH = f"{UNIT_FOLDER}/{JOB_UNIT}"


def unit_of_job(job: str) -> str:
    """The unit of the job with this id."""
    return JOB_UNIT.replace("@", f"@{job}")


def job_unit(inventory: "Inventory", places: NodePlaces = NodePlaces()) -> str:  # noqa: B008  frozen
    """The unit's content.

    It names no log: the job opens its log itself, as the account; systemd would open it as root, through any link. The
    drop-in of all units limits its addresses. `systemctl start` returns once the job holds the cluster (READY=1), or
    fails when another job does.
    """
    release, state = places.release, places.state
    runs = shared_folders(inventory).runs_mount
    return f"""\
# Written by pscluster from the inventory of cluster {inventory.cluster}; `fab deploy start` replaces changes made here.
[Unit]
Description=pscluster job %i of cluster {inventory.cluster}
Wants=network-online.target
After=network-online.target pscluster-firewall.service
RequiresMountsFor={state} {runs}
CollectMode=inactive-or-failed

[Service]
Type=notify
NotifyAccess=main
User={places.user}
WorkingDirectory={release}
Environment=PYTHONPATH={release} PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
Environment=HOME={state}/{ACCOUNT_HOME} XDG_CACHE_HOME={state}/{ACCOUNT_HOME}/cache
ExecStart={places.python} -m deploy.jobs.node_job %i --root {state}
TimeoutStartSec=120
# 130 is a job that was cancelled: SIGINT reaches the main process alone, which has 60 s for the result so far.
SuccessExitStatus=130
KillMode=mixed
KillSignal=SIGINT
TimeoutStopSec=75
# A coordinator that ran out of memory is brought back by the job itself.
OOMPolicy=continue
OOMScoreAdjust=200
LimitCORE=0
LimitNOFILE={MOST_DESCRIPTORS}
Slice=pscluster.slice
TasksMax=2048
{chr(10).join(HARDENING)}
# The coordinator's watchdog takes its sockets from it (pidfd_getfd), to cut them to a worker that stands still; the
# process it takes them from allows that, and has no more rights than it has.
SystemCallFilter=pidfd_getfd
ReadWritePaths={state} {runs}
"""
