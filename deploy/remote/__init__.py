"""Nodes over SSH: one connection a node, pinned host keys, a deadline on every wait."""

import logging

# paramiko's threads log the tracebacks of connections that fail, and Python shows what no handler takes. The error that
# a command ends with has the reason.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
