"""The machines and processes of a cluster: connections, services, places, selection."""

import logging

# paramiko's threads log the tracebacks of connections that fail, and Python shows what no handler
# takes. The error that a command ends with has the reason.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
