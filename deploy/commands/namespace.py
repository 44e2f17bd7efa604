"""Everything `fab --list` lists."""

from invoke.collection import Collection

from deploy.commands.actions import ACTIONS
from deploy.commands.dispatcher import as_task, collection
from deploy.commands.init import init
from deploy.commands.job_actions import JOB_ACTIONS
from deploy.commands.jobs import JOBS


def namespace() -> Collection:
    """`deploy ACTION`, `job ACTION` and `init`."""
    made = Collection()
    made.add_collection(collection("deploy", "action", ACTIONS))
    made.add_collection(collection("job", "action", (*JOBS, *JOB_ACTIONS)))
    made.add_task(as_task(init))
    return made
