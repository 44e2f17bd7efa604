"""What keeps a role process from starting, each with an exit code of its own."""

from cluster.errors import ClusterError, ExitCode


class PortTakenError(ClusterError):
    """Another socket already listens on the port."""

    exit_code = ExitCode.PORT_TAKEN


class WheelMissingError(ClusterError):
    """TensorFlow is not installed, or its libraries cannot be loaded here."""

    exit_code = ExitCode.WHEEL_MISSING


class TooLittleMemoryError(ClusterError):
    """The machine, its cgroup or a process limit leaves too little memory for the role."""

    exit_code = ExitCode.TOO_LITTLE_MEMORY
