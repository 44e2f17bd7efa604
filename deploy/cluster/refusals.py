"""A connection to an SSH server before its login, and why a login failed, in one line.

TCP or a process carries it, and the server shows its host key. A failure names its own cause; what
is not known is quoted, without a cause.
"""

import errno
import logging
import socket
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Any, Self

from core.ground.errors import reason_of
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.keys import Agent, Offer, UnusableKeyError, offers
from deploy.cluster.login import SshAddress, server_was_busy, until_not_busy, why_no_ssh
from deploy.cluster.openssh import ConfigurationError, Route

if TYPE_CHECKING:
    from paramiko import PKey, Transport


class Way:
    """An open connection to an SSH server, and the process that carries it, if any."""

    def __init__(
        self,
        sock: Any,
        process: "subprocess.Popen[bytes] | None" = None,
        errors: IO[bytes] | None = None,
    ):
        self.sock = sock
        self._process = process
        self._said = errors
        self.gave_up = False
        """Whether the process ended by itself, with an exit code other than 0. Known after
        `complaint`."""

    @classmethod
    def open(cls, route: Route, connect_seconds: float) -> Self:
        """Connect. Raises OSError."""
        if not route.through:
            if route.source is None:
                source = None
            else:
                source = (route.source, 0)
            return cls(socket.create_connection((route.host, route.port), connect_seconds, source))
        errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the connection
        near_end, far_end = socket.socketpair()
        with far_end:
            try:
                process = subprocess.Popen(
                    route.through,
                    stdin=far_end.fileno(),
                    stdout=far_end.fileno(),
                    stderr=errors,
                    start_new_session=True,
                )
            except BaseException:
                near_end.close()
                errors.close()
                raise
        return cls(near_end, process, errors)

    def complaint(self) -> str:
        """Return what the carrying process said on its standard error, empty without one."""
        if self._process is None or self._said is None:
            return ""
        self._end()
        self._said.seek(0)
        lines = self._said.read(100_000).decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())

    def close(self) -> None:
        """Close the connection and end the process that carried it."""
        self.sock.close()
        if self._process is not None:
            self._end()
        if self._said is not None:
            self._said.close()

    def _end(self) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(0.5)  # ssh ends by itself when its connection does
            self.gave_up = code != 0
        except subprocess.TimeoutExpired:
            self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_way(address: SshAddress, through: Any = None) -> Way:
    """Connect to the SSH server, through the open connection `through` to a jump host if given.

    Raises OSError, NodeUnreachableError, or paramiko's SSHException of the jump host.
    """
    if through is None:
        return Way.open(address.route, address.connect_seconds)
    where = (address.route.host, address.port)
    channel = through.transport.open_channel(
        "direct-tcpip", where, ("", 0), timeout=address.connect_seconds
    )
    return Way(channel)


_NOT_THERE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)
_SHOWN_LABELS = 4


class LoginRefusedError(Exception):
    """The server took none of the keys; the text names the offered ones and its answer."""


class NoKeyError(Exception):
    """There was no key to offer; the text says why and what to do."""


class ServersWords(logging.Handler):
    """A server's words as it ends a connection, which paramiko writes to its log alone."""

    def __init__(self, channel: str) -> None:
        super().__init__(logging.INFO)
        self.channel = channel
        self.text = ""
        logger = logging.getLogger(channel)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        # It stays: a thread of paramiko may write after the end, and without a handler Python would
        # show it.
        logger.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the server's reason."""
        message = record.getMessage()
        if message.startswith("Disconnect (code"):
            self.text = message.partition("): ")[2]


class Login:
    """Offers the keys of a route in turn; paramiko calls it once the server's own key is right."""

    def __init__(self, address: SshAddress, server_message: ServersWords) -> None:
        self._address = address
        self._words = server_message
        self._offered: list[str] = []
        self._unusable: list[str] = []

    def authenticate(self, transport: "Transport") -> None:
        """Log in.

        Raises NoKeyError, LoginRefusedError, or the error that the connection broke with.
        """
        route = self._address.route
        agent = Agent.at(route.agent, self._address.connect_seconds)
        try:
            for offer in offers(route, agent):
                if isinstance(offer, UnusableKeyError):
                    self._unusable.append(str(offer))
                elif self._accepted(transport, offer):
                    return
        finally:
            agent.close()
        if self._offered:
            raise LoginRefusedError(self._refusal(_banner(transport)))
        raise NoKeyError(self._no_key())

    def _accepted(self, transport: "Transport", offer: Offer) -> bool:
        from paramiko import AuthenticationException, BadAuthenticationType, SSHException

        self._offered.append(offer.label)
        try:
            further = transport.auth_publickey(self._address.user, offer.key)
        except BadAuthenticationType as error:
            raise LoginRefusedError(
                f"login refused: the server takes {', '.join(error.allowed_types)} from"
                f" {self._address.user}, and `fab` logs in with a key alone: allow"
                " `PubkeyAuthentication` in its sshd_config"
            ) from error
        except AuthenticationException as error:
            if str(error).startswith("Authentication timeout"):
                raise
            if not transport.is_active():
                raise LoginRefusedError(self._refusal("")) from error
            return False
        except (SSHException, EOFError, OSError) as error:
            if self._words.text:
                raise LoginRefusedError(self._refusal("")) from error
            raise LoginRefusedError(
                f"the server ended the login without a word ({reason_of(error)})"
            ) from error
        if further:
            raise LoginRefusedError(
                f"login refused: after the key the server also wants {', '.join(further)}, which"
                " `fab` cannot give: allow a login by key alone for this account"
            )
        return True

    def _refusal(self, banner: str) -> str:
        address = self._address
        labels = ", ".join(self._offered[:_SHOWN_LABELS])
        if len(self._offered) > _SHOWN_LABELS:
            labels += f" and {len(self._offered) - _SHOWN_LABELS} more"
        notes = "".join(f"; {problem}" for problem in self._unusable)
        if "too many authentication failures" in self._words.text.lower():
            return (
                f"login refused: the server ended it after {len(self._offered)} keys"
                f" ({self._words.text}): name the right key in `ssh.key`, which is then the only"
                f" one that is offered{notes}"
            )
        if self._words.text:
            return (
                f"login refused: the server ended it: {self._words.text} (offered: {labels}){notes}"
            )
        if banner:
            return (
                f"login refused (offered: {labels}); it says: {banner}; if it does not know the"
                f" key: `{address.copy_id}`{notes}"
            )
        return (
            f"login refused (offered: {labels}): put your public key into"
            f" ~{address.user}/.ssh/authorized_keys there (`{address.copy_id}`), or name the key in"
            f" `ssh.key`{notes}"
        )

    def _no_key(self) -> str:
        if self._unusable:
            return "; ".join(self._unusable)
        if self._address.key is not None:
            return f"no private key in {self._address.key}: correct `ssh.key`"
        return (
            "no key to log in with: the agent holds none, and no usual file is there; load one"
            " (`ssh-add FILE`), name it in `ssh.key`, or make one (`ssh-keygen -t ed25519`)"
        )


def _banner(transport: "Transport") -> str:
    banner: Any = transport.get_banner()
    if isinstance(banner, bytes):
        banner = banner.decode(errors="replace")
    return " ".join((banner or "").split())[:300]


class CarrierError(Exception):
    """The process that carried the connection gave up; the text is its own."""


def cause_of(error: Exception, way: Way | None) -> Exception:
    """Return a CarrierError where another try helps no further, else the error itself."""
    if way is None or not server_was_busy(error) or not (complaint := way.complaint()):
        return error
    busy = any(phrase in complaint for phrase in ("closed by remote host", "reset by peer"))
    if way.gave_up and not busy:
        return CarrierError(complaint)
    return error


def why(error: Exception, address: SshAddress, way: Way | None) -> str:
    """Return why the login failed: cause and remedy where they are known, else the error.

    What a process that carried the connection said is quoted too; it may be no more than the banner
    of a gate.
    """
    explains_itself = isinstance(error, LoginRefusedError | NoKeyError | ConfigurationError)
    if way is None or explains_itself:
        complaint = ""
    else:
        complaint = way.complaint()
    if way is None or not complaint:
        return _why_it_failed(error, address)
    if way.gave_up:
        return f"no connection through `{way_words(address)}`: {complaint}"
    return f"{_why_it_failed(error, address)}; `{way_words(address)}` said: {complaint}"


def _why_it_failed(error: Exception, address: SshAddress) -> str:
    from paramiko import BadHostKeyException, SSHException

    seconds = address.connect_seconds
    reason = reason_of(error)
    if isinstance(error, LoginRefusedError | NoKeyError | ConfigurationError):
        return str(error)
    if isinstance(error, BadHostKeyException):
        return (
            "its host key is not the one that is pinned: another machine may answer there, or the"
            " system was installed again; after comparing the fingerprints, `fab deploy trust` pins"
            " the new one"
        )
    if isinstance(error, SSHException) and "not found in known_hosts" in reason:
        return (
            "its host key is not known: `fab deploy trust` shows the fingerprints and records them"
        )
    if isinstance(error, SSHException) and reason.startswith("Authentication timeout"):
        return (
            f"no answer to the login within {seconds:g} s: give it longer in `ssh.connect_seconds`"
        )
    if no_ssh := why_no_ssh(error, seconds):
        return no_ssh
    if isinstance(error, socket.gaierror):
        return (
            f"no connection: {reason}: the name {address.route.host!r} has no address; is it right?"
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"no connection: {reason}: nothing listens at port {address.port}; is SSH on, and is"
            " `ssh.port` right?"
        )
    if isinstance(error, TimeoutError) or (
        isinstance(error, OSError) and error.errno in _NOT_THERE
    ):
        return f"no connection: {reason}; is it switched on, and is the address right?"
    return f"no connection: {reason}"


def way_words(address: SshAddress) -> str:
    """Return the command line that carries the connection, for a message."""
    return " ".join(address.route.through)


def ask_for_key(address: SshAddress, through: Any = None) -> "PKey":
    """The key that the node's SSH server shows, without a login.

    `through` is an open connection to a jump host.

    Raises NodeUnreachableError.
    """
    return until_not_busy(lambda: _ask_once(address, through))


def _ask_once(address: SshAddress, through: Any) -> "PKey":
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
        raise NodeUnreachableError(
            f"{address.name} ({address.host}:{address.port}): {why(error, address, way)}"
        ) from cause_of(error, way)
    finally:
        if transport is not None:
            transport.close()
        if way is not None:
            way.close()
