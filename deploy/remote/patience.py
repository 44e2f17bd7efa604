"""A login that a busy server dropped is tried again: sshd does so beyond MaxStartups, at the banner."""

import random
import time

TRIES = 6
"""The first, and five more."""


def server_was_busy(error: BaseException) -> bool:
    """Whether the server closed the connection before it said who it is."""
    from paramiko import SSHException

    busy = isinstance(error, SSHException) and "banner" in str(error).lower()
    return busy or isinstance(error, EOFError | ConnectionResetError)


def wait_a_little(attempt: int) -> None:
    """Longer with each attempt, and not as long as the others who were dropped at the same time."""
    time.sleep(random.uniform(0.2, 0.6) * (attempt + 1))
