"""The subjects of a deployment, in the order in which a node is asked about them and they are undone."""

from deploy.converge.accounts import ACCOUNTS
from deploy.converge.clock import CLOCK
from deploy.converge.firewall import FIREWALL
from deploy.converge.packages import PACKAGES

SUBJECTS = [CLOCK, FIREWALL, PACKAGES, ACCOUNTS]
"""The clock first: the answer should be as near to the question as possible."""
