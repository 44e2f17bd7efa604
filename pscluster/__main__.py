"""`pscluster`, also as `python -m pscluster`: the commands of `fab` from any folder, without a fabfile."""

import sys

from deploy.common.interrupts import quiet_until_a_command_begins
from pscluster.version import own_version


def main() -> None:
    """Run the command line; `pscluster --list` names the commands."""
    quiet_until_a_command_begins()
    try:
        from invoke.program import Program

        from deploy.commands import namespace
    except ModuleNotFoundError as missing:
        sys.exit(
            f"pscluster: no module {missing.name}: expected the commands' packages; pip install 'pscluster[operator]'"
        )
    Program(version=own_version(), namespace=namespace(), name="pscluster", binary="pscluster").run()


if __name__ == "__main__":
    main()
