"""`python -m deploy.supervisor --inventory FILE [--set KEY=VALUE ...]`.

`fab deploy start` starts and detaches it.
"""

import argparse
import os
import sys
from pathlib import Path

import core.inventory
from core.control.door import raise_limit
from core.control.own_state import VARIABLE
from core.ground.errors import ClusterError
from core.logs import say
from core.logs.lines import LogSettings
from deploy.common.state_folder import StateFolder
from deploy.supervisor.processes import role_launches
from deploy.supervisor.supervisor import serve


def main() -> int:
    """Supervise one cluster until it is stopped; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.supervisor", description=__doc__)
    parser.add_argument("--inventory", type=Path, required=True, help="the cluster to keep running")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of it"
    )
    parser.add_argument(
        "--hold", action="append", default=[], metavar="TASK", help="do not start this role yet"
    )
    flags = parser.parse_args()
    raise_limit()
    try:
        inventory = core.inventory.load(flags.inventory, flags.set)
        folder = StateFolder.of(inventory.path, inventory.cluster)
        folder.create()
        token = folder.token()
        os.environ.pop(VARIABLE, None)  # a role gets its own key alone
        launches = role_launches(
            inventory.tasks(), inventory.path, flags.set, folder, flags.hold, token
        )
        logs = LogSettings(inventory.logging.format, inventory.logging.level)
        serve(inventory.cluster, launches, folder, inventory.path, logs=logs)
    except ClusterError as error:
        say(error, error=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
