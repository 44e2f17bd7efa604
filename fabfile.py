"""The commands of pscluster; `fab --list` names them, docs/commands.md explains them."""

from deploy.commands import namespace

ns = namespace()
