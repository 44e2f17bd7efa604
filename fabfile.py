"""The commands of pscluster; `fab --list` names them, docs/commands.md explains them."""

from deploy.common.interrupts import quiet_until_a_command_begins

quiet_until_a_command_begins()

from fabric.main import program  # noqa: E402

from deploy.commands.door import namespace  # noqa: E402  takes a while

ns = namespace(program)
