"""Everything `fab --list` lists."""

from invoke.collection import Collection

from deploy.commands.actions import ACTIONS
from deploy.commands.dispatcher import as_task, collection
from deploy.commands.init import init
from deploy.commands.jobs import JOB_ACTIONS, REPORT_HELP, report


def namespace() -> Collection:
    """`deploy ACTION`, `job ACTION`, `init` and `report`."""
    made = Collection()
    made.add_collection(collection("deploy", "action", ACTIONS))
    made.add_collection(collection("job", "action", JOB_ACTIONS))
    made.add_task(as_task(init))
    made.add_task(as_task(report, own_help=REPORT_HELP, repeatable=frozenset({"run"})))
    return made
