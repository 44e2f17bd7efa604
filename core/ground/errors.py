"""The errors that a person may see: each ends in one line and a documented exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command and role process. 0 to 3 and 130 are the contract of `fab`."""

    DONE = 0
    FAILED = 1
    BAD_USAGE = 2
    DEGRADED = 3
    PORT_TAKEN = 20
    WHEEL_MISSING = 21
    ILLEGAL_INSTRUCTION = 22
    TOO_LITTLE_MEMORY = 23
    SERVER_LOST = 24  # a parameter server is lost, with its parameters: the job is resumable
    RESTART_ASKED = 25  # a role was asked to restart, or keeps too many threads
    PROGRAM_KILLED = (
        26  # a signal that we did not send ended a person's program: another attempt can succeed
    )
    CANCELLED = 130


class ClusterError(Exception):
    """One line for the user, without a traceback.

    It says what was expected, what came, where, and what to do.
    """

    exit_code: ExitCode = ExitCode.FAILED


class UsageError(ClusterError):
    """The inventory, a flag or the user's data is unusable."""

    exit_code = ExitCode.BAD_USAGE


class DataError(UsageError):
    """Recordings are unreadable: the message names file, line and remedy."""


def reason_of(problem: Exception) -> str:
    """The reason that `problem` gives, in one line for a message that names the file."""
    match problem:
        case KeyError():
            return f"no key {problem}"
        case OSError(strerror=str(reason)):
            return reason
    errors = getattr(problem, "errors", None)  # pydantic's, which a role process does not import
    if callable(errors):
        first = errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(part if str(part).isidentifier() else repr(part) for part in first["loc"])
        return f"{place:.200}: {first['msg']}"
    lines = [
        line.strip() for line in str(problem).splitlines() if line.strip()
    ]  # Keras begins with an empty one
    return (lines or [type(problem).__name__])[0]
