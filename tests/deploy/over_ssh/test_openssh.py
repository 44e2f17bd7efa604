"""Where `ssh` gets with a configuration, `fab` gets too: OpenSSH reads `~/.ssh/config`."""

import getpass
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.login import PinnedKeys, SshAddress
from deploy.cluster.refusals import ask_for_key
from tests.deploy.over_ssh.sshd import Sshd
from tests.deploy.tables import Tables
from tests.deploy.three_nodes import THREE
from tests.deploy.typed import as_process
from tests.habits import needs

rows = Tables(__file__)

ME = getpass.getuser()
CARRY = (
    "import os, socket, sys, threading\n"
    "far = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
    "def out():\n"
    "    while piece := far.recv(65536):\n"
    "        os.write(1, piece)\n"
    "    os._exit(0)\n"
    "threading.Thread(target=out, daemon=True).start()\n"
    "while piece := os.read(0, 65536):\n"
    "    far.sendall(piece)\n"
)
"""A ProxyCommand, as `nc` is."""

CASES = {
    "match final": "Match final all\n    Compression yes\n{usual}",
    "match with an equals sign": "Match host=127.0.0.*\n    Compression yes\n{usual}",
    "no jump before one for all": (
        "Host 127.0.0.1\n    ProxyJump none\nHost *\n    ProxyJump gate.invalid\n{usual}"
    ),
    "no command before one for all": (
        "Host 127.0.0.1\n    ProxyCommand none\nHost *\n    ProxyCommand false\n{usual}"
    ),
    "an included key": "Include {folder}/config.d/*\n{trusting}",
    "an alias": "Host pi-two\n    HostName 127.0.0.1\n    Port {port}\n    User {me}\n{usual}",
    "a jump": (
        "Host gate\n    HostName 127.0.0.1\n    Port {port}\n    User {me}\n"
        "Host pi-two\n    HostName 127.0.0.1\n    Port {port}\n    ProxyJump gate\n{usual}"
    ),
    "two jumps": (
        "Host gate\n    HostName 127.0.0.1\n    Port {port}\n    User {me}\nHost pi-two\n   "
        " HostName 127.0.0.1\n    Port {port}\n    ProxyJump gate,{me}@gate:{port}\n{usual}"
    ),
    "a command": (
        "Host pi-two\n    HostName 127.0.0.1\n    Port {port}\n"
        "    ProxyCommand '{python}' {folder}/carry.py %h %p\n{usual}"
    ),
    "what has no meaning here": (
        "IgnoreUnknown Nonsense\nNonsense 1\nRequestTTY force\nRemoteCommand false\n"
        "SetEnv A=b\nCanonicalizeHostname yes\nIdentitiesOnly yes\n{usual}"
    ),
}
ALIASES = ("an alias", "a jump", "two jumps", "a command")


class Person:
    """Somebody whose `ssh` reads a configuration of their own."""

    def __init__(self, folder: Path, server: Sshd) -> None:
        self.folder = folder
        self.server = server
        self.config = folder / ".ssh/config"
        for name in (".ssh", "config.d", "programs"):
            (folder / name).mkdir()
        (folder / "config.d/keys").write_text(f"IdentityFile {server.user_key}\n")
        (folder / "carry.py").write_text(CARRY)
        ssh = folder / "programs/ssh"
        self.openssh = needs.tool("ssh")
        ssh.write_text(f'#!/bin/sh\nexec "{self.openssh}" -F {self.config} "$@"\n')
        ssh.chmod(0o755)

    def writes(self, text: str) -> None:
        trusting = (
            f"Host *\n    UserKnownHostsFile {self.folder}/their_hosts\n    StrictHostKeyChecking"
            " accept-new\n"
        )
        filled = text.format(
            usual=f"{trusting}    IdentityFile {self.server.user_key}\n",
            trusting=trusting,
            folder=self.folder,
            port=self.server.port,
            me=ME,
            python=sys.executable,
        )
        self.config.write_text(filled)


@pytest.fixture
def person(tmp_path: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Person(tmp_path, sshd)


@pytest.mark.parametrize("case", CASES)
def test_where_ssh_gets_check_and_trust_get_too(case: str, person: Person) -> None:
    if case in ("a jump", "two jumps") and " " in str(person.openssh):
        needs.skip("OpenSSH starts itself for a jump by its path, without quotes")
    person.writes(CASES[case])
    host = "127.0.0.1"
    port: int | None = person.server.port
    words = ["ssh", "-o", "RemoteCommand=none", "-T", "-l", ME, "-p", str(port), host, "true"]
    if case in ALIASES:
        host = "pi-two"
        port = None
        words[-4:] = [host, "true"]
    assert subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    address = SshAddress("node", host, ME, port, None, 10.0)
    pinned = PinnedKeys(person.folder / "known_hosts")
    pinned.record([pinned.standing(address, ask_for_key(address))])
    node = NodeConnection(address, pinned)
    assert node.run(["echo", "here"]).text == "here\n"
    node.close()


def test_an_account_and_a_port_of_the_configuration(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.writes("Host pi-two\n    HostName 127.0.0.1\n    Port 2200\n    User admin\n{usual}")
    found = SshAddress("node", "pi-two", None, None, None, 10.0)
    assert (found.route.host, found.user, found.port) == ("127.0.0.1", "admin", 2200)
    assert found.known_as == "[pi-two]:2200"
    stated = SshAddress("node", "pi-two", "anna", 22, None, 10.0)
    assert (stated.user, stated.port, stated.known_as) == ("anna", 22, "pi-two")
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    nobody_says = SshAddress("node", "127.0.0.1", None, None, None, 10.0)
    assert (nobody_says.user, nobody_says.port) == ("pi", 22)


def test_what_a_configuration_says_of_the_usual_account_holds_where_the_inventory_is_silent(
    person: Person,
) -> None:
    person.writes(
        "Match user pi\n    IdentityFile /keys/%r\n    CertificateFile /of/%r\nMatch all\n   "
        " BindAddress 127.0.0.1\n"
    )
    route = SshAddress("node", "127.0.0.1", None, None, None, 10.0).route
    assert (route.user, route.source) == ("pi", "127.0.0.1")
    assert (route.keys, route.certificates) == ((Path("/keys/pi"),), (Path("/of/pi"),))


@rows("text", "key")
def test_a_key_of_an_account_that_is_not_here(text: str, key: str | None, person: Person) -> None:
    person.writes(text)
    assert "~nobody-here/key: there is no account 'nobody-here'" in refused(person, key)


def refused(person: Person, key: str | None = None, port: int | None = None) -> str:
    """What is said of the node that cannot be asked for its key."""
    port = port or person.server.port
    with pytest.raises(NodeUnreachableError) as caught:
        ask_for_key(SshAddress("node", "127.0.0.1", ME, port, key, 1.0))
    return str(caught.value)


def test_a_configuration_that_ssh_refuses_is_quoted(person: Person) -> None:
    person.writes("Match nonsense 1\n{usual}")
    assert re.search(r"ssh refuses its configuration: .*config.*line 1", refused(person))


def test_a_command_that_passes_a_descriptor_is_refused(person: Person) -> None:
    person.writes("Host *\n    ProxyCommand true\n    ProxyUseFdpass yes\n")
    assert "ProxyUseFdpass of the SSH configuration" in refused(person)


def test_a_jump_that_fails_is_quoted(person: Person) -> None:
    tried = person.folder / "tried"
    person.writes(
        f"Host *\n    ProxyCommand sh -c 'echo >>{tried}; echo the gate is shut >&2; exit 1'\n"
    )
    assert re.search(r"no connection through .*: the gate is shut", refused(person))
    assert tried.read_text() == "\n", (
        "another try does not open it, and a gate bans who tries often"
    )


def test_the_banner_of_a_gate_is_no_cause(person: Person) -> None:
    greeted = 'echo members only >&2; exec "{python}" {folder}/carry.py %h %p'
    person.writes(f"Host *\n    ProxyCommand sh -c '{greeted}'\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = refused(person, port=silent.getsockname()[1])
    assert re.search(r"says nothing that SSH would .* said: members only$", said)


@rows("case")
def test_fab_itself_reads_no_configuration(case: str, person: Person) -> None:
    person.writes(CASES[case])
    inventory = THREE.format(user=ME, port=person.server.port, key=person.server.user_key)
    (person.folder / "inventory.yaml").write_text(inventory.replace("127.0.0.2", "127.0.0.1"))
    done = as_process("deploy trust --limit pi-1 --yes", person.folder).says()
    assert "Traceback" not in done.stderr
