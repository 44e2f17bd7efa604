"""The host key that an SSH server shows before anybody logs in."""

from typing import TYPE_CHECKING, Any

from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.login import SshAddress, until_not_busy
from deploy.cluster.refusals import cause_of, why
from deploy.cluster.way import open_way

if TYPE_CHECKING:
    from paramiko import PKey


def ask_for_key(address: SshAddress, through: Any = None) -> "PKey":
    """The key that the node's SSH server shows, without a login.

    `through` is an open connection to a jump host.

    Raises NodeUnreachableError.
    """
    return until_not_busy(lambda: _shown_key(address, through))


def _shown_key(address: SshAddress, through: Any) -> "PKey":
    from paramiko import SSHException, Transport

    way = None
    transport = None
    try:
        way = open_way(address, through)
        transport = Transport(way.sock)
        transport.banner_timeout = address.connect_seconds
        transport.start_client(timeout=address.connect_seconds)
        return transport.get_remote_server_key()
    except (SSHException, OSError, EOFError) as error:
        place = f"{address.name} ({address.host}:{address.port})"
        raise NodeUnreachableError(f"{place}: {why(error, address, way)}") from cause_of(error, way)
    finally:
        if transport is not None:
            transport.close()
        if way is not None:
            way.close()
