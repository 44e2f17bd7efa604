"""Everything `fab --list` lists."""

from invoke.collection import Collection

from deploy.commands.actions import ACTIONS
from deploy.commands.dispatcher import as_task, collection
from deploy.commands.init import init
from deploy.commands.job_actions import JOB_ACTIONS
from deploy.commands.jobs import JOBS
from deploy.commands.report import HELP as REPORT_HELP
from deploy.commands.report import report


def namespace() -> Collection:
    """`deploy ACTION`, `job ACTION`, `init` and `report`."""
    made = Collection()
    made.add_collection(collection("deploy", "action", ACTIONS))
    made.add_collection(collection("job", "action", (*JOBS, *JOB_ACTIONS)))
    made.add_task(as_task(init))
    made.add_task(as_task(report, own_help=REPORT_HELP, repeatable=frozenset({"run"})))
    return made
