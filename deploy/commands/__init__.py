"""The `fab` commands: flags in, one line or one table out. What they do is in the modules of `deploy`."""

from deploy.commands.dispatcher import namespace

__all__ = ["namespace"]
