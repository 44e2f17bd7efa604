"""What OpenSSH would do to reach a host.

`ssh -G` reads the person's configuration, and no parser of ours does.
"""

import os
import pwd
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from core.ground.children import finished
from core.ground.errors import ClusterError
from deploy.common.command_line import quoted, shell

ANSWER_SECONDS = 20.0
"""The configuration may run commands of the person's (`Match exec`)."""
_NO_SSH = "no program `ssh` here: expected OpenSSH's client, `sudo apt install openssh-client`"


class ConfigurationError(ClusterError):
    """OpenSSH refuses its own configuration, or it asks for something that `fab` cannot do."""


@dataclass(frozen=True)
class Route:
    """The way to one SSH server, and the keys that `ssh` would offer there.

    `agent` is the socket of an agent or None. `only_these` leaves out what else the agent holds.
    `through` is the command line of a process that carries the connection, empty for TCP. TCP
    begins at the address `source`, if any. `certificates` are of some of the keys, beside those
    that have a key's own name.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    agent: Path | None
    only_these: bool
    through: tuple[str, ...]
    source: str | None = None
    certificates: tuple[Path, ...] = ()


def home() -> Path:
    """The person's home as OpenSSH takes it, which is not `$HOME`."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def own_account() -> str:
    """The name of this account as OpenSSH takes it, which is not `$USER`."""
    return pwd.getpwuid(os.getuid()).pw_name


def expanded(path: str) -> Path:
    """Return the path with its `~` or `~account` replaced.

    Raises ConfigurationError for an unknown account.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        account = path.partition("/")[0].removeprefix("~")
        raise ConfigurationError(
            f"{path}: there is no account {account!r} on this machine"
        ) from None


def route_to(
    host: str, user: str | None, port: int | None, key: Path | None, connect_seconds: float
) -> Route:
    """Return the route that `ssh` takes to `host`; what is given wins over the configuration.

    Without `user` the route has the one of the configuration, or the name of this account. Raises
    ConfigurationError.
    """
    command_line = ["ssh", "-G"]
    if user is not None:
        command_line += ["-l", user]
    if port is not None:
        command_line += ["-p", str(port)]
    if key is not None:
        command_line += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
    answer = _answer([*command_line, "--", host])
    return _Answer(answer, host).route(connect_seconds, None if key is None else (key,))


def _answer(command_line: list[str]) -> str:
    try:
        ssh = finished(command_line, seconds=ANSWER_SECONDS)
    except FileNotFoundError:
        raise ConfigurationError(_NO_SSH) from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"`{quoted(*command_line)}` gave no answer within {ANSWER_SECONDS:g} s: does a `Match"
            " exec` of the SSH configuration wait for something?"
        ) from None
    if ssh.code != 0:
        lines = [line.strip() for line in ssh.errors.splitlines() if line.strip()]
        raise ConfigurationError(f"ssh refuses its configuration: {' | '.join(lines[-3:])}")
    return ssh.output


class _Answer:
    """The lines of `ssh -G`: a keyword and its value each."""

    def __init__(self, output: str, typed: str) -> None:
        self._values: dict[str, list[str]] = {}
        for line in output.splitlines():
            keyword, _, value = line.partition(" ")
            self._values.setdefault(keyword, []).append(value)
        self._typed = typed

    def _first(self, keyword: str, default: str) -> str:
        return self._values.get(keyword, [default])[0]

    def route(self, connect_seconds: float, keys: tuple[Path, ...] | None) -> Route:
        host = self._first("hostname", self._typed)
        port = int(self._first("port", "22"))
        user = self._first("user", own_account())
        letters = self._letters(host, port, user)
        if keys is None:
            named = self._values.get("identityfile", [])
            keys = tuple(_path(value, letters) for value in named if value != "none")
        return Route(
            host=host,
            port=port,
            user=user,
            keys=keys,
            agent=self._agent(letters),
            only_these=self._first("identitiesonly", "no") == "yes",
            through=self._through(letters, connect_seconds),
            certificates=tuple(
                _path(value, letters)
                for value in self._values.get("certificatefile", [])
                if value != "none"
            ),
            source=self._values.get("bindaddress", [None])[0],
        )

    def _letters(self, host: str, port: int, user: str) -> dict[str, str]:
        host_name = socket.gethostname()
        return {
            "%": "%",
            "d": str(home()),
            "h": host,
            "i": str(os.getuid()),
            "k": self._first("hostkeyalias", self._typed),
            "l": host_name,
            "L": host_name.partition(".")[0],
            "n": self._typed,
            "p": str(port),
            "r": user,
            "u": own_account(),
        }

    def _agent(self, letters: dict[str, str]) -> Path | None:
        named = self._first("identityagent", "SSH_AUTH_SOCK")
        if named == "none":
            return None
        if named == "SSH_AUTH_SOCK":
            named = "$SSH_AUTH_SOCK"
        if named.startswith("$"):
            variable = named.lstrip("$").strip("{}")
            path = os.environ.get(variable)
            if path:
                return Path(path)
            return None
        return _path(named, letters)

    def _through(self, letters: dict[str, str], connect_seconds: float) -> tuple[str, ...]:
        jumps = self._first("proxyjump", "none")
        if jumps != "none":
            # As ssh does it: the last machine is logged into, by way of those before it.
            before, _, last = jumps.rpartition(",")
            if last.startswith("ssh://"):
                where = last
            else:
                where = f"ssh://{last}"
            options = [
                "-o",
                "BatchMode=yes",
                "-o",
                f"ConnectTimeout={max(1, round(connect_seconds))}",
            ]
            if before:
                by_way = ["-J", before]
            else:
                by_way = []
            target = f"[{letters['h']}]:{letters['p']}"
            return ("ssh", *options, *by_way, "-W", target, "--", where)
        command = self._first("proxycommand", "none")
        if command == "none":
            return ()
        if self._first("proxyusefdpass", "no") == "yes":
            raise ConfigurationError(
                "ProxyUseFdpass of the SSH configuration: `fab` cannot do that; leave it out here"
            )
        return tuple(shell('eval "exec $1"', _filled(command, letters)))  # as OpenSSH runs it


def _path(named: str, letters: dict[str, str]) -> Path:
    filled = _filled(named, letters)
    filled = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), filled)
    if filled == "~" or filled.startswith("~/"):
        return home() / filled[2:]
    return expanded(filled)


def _filled(text: str, letters: dict[str, str]) -> str:
    def meaning(match: re.Match[str]) -> str:
        letter = match[1]
        if letter not in letters:
            raise ConfigurationError(
                f"{text!r} of the SSH configuration: `fab` does not know %{letter}; write it out,"
                " or name the key in `ssh.key`"
            )
        return letters[letter]

    return re.sub(r"%(.)", meaning, text)
