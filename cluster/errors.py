"""The errors a person may meet, each of which ends in one clear line and a documented exit code."""

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
    SERVER_LOST = 24  # a parameter server went, and its parameters with it: the job can be resumed
    RESTART_ASKED = 25  # a role was asked over its metrics port to be started anew
    CANCELLED = 130


class ClusterError(Exception):
    """What was expected, what came, where, and what to do; shown to the user as one line without a traceback."""

    exit_code: ExitCode = ExitCode.FAILED


class UsageError(ClusterError):
    """The inventory, a flag or the user's data cannot be used as given."""

    exit_code = ExitCode.BAD_USAGE


class DataError(UsageError):
    """Recordings that cannot be read: the message names file, line and remedy."""
