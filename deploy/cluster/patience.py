"""A login that a busy server dropped is tried again: sshd does so beyond MaxStartups, at the banner."""

import random
import time

TRIES = 6
"""The first, and five more."""


def server_was_busy(error: BaseException) -> bool:
    """Whether the server closed the connection before it said who it is."""
    from paramiko import SSHException

    # Under the same words paramiko tells a server that closed and one that says nothing: only the first is busy.
    if isinstance(error, SSHException) and "banner" in str(error).lower() and error.__context__ is not None:
        error = error.__context__
    return isinstance(error, EOFError | ConnectionResetError)


def why_no_ssh(error: BaseException, connect_seconds: float) -> str | None:
    """Why what answers there is no SSH server that can be used, and what to do; None for another error."""
    from paramiko import SSHException

    if server_was_busy(error):
        return (
            f"closed the connection {TRIES} times before it said who it is: too many logins at once (MaxStartups), a "
            "ban of this machine (fail2ban), or no SSH server; wait a minute, or see `journalctl -u ssh` there"
        )
    said = str(error)
    if not isinstance(error, SSHException):
        return None
    if "SSH protocol banner" in said or said == "No existing session":
        return (
            f"takes the connection and says nothing that SSH would within {connect_seconds:g} s: is the port right, "
            "and does the machine hang?"
        )
    if said.startswith(("Indecipherable protocol", "Invalid SSH banner", "Incompatible version", "Invalid packet")):
        return f"what answers is no SSH server ({said}): are the address and the port right?"
    return None


def wait_a_little(attempt: int) -> None:
    """Longer with each attempt, and not as long as the others who were dropped at the same time."""
    time.sleep(random.uniform(0.2, 0.6) * (attempt + 1))
