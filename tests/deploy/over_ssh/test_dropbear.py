"""Dropbear, DietPi's server, ends a connection whose command is longer than 9,000 bytes."""

import getpass
import os
import shlex
import subprocess
from pathlib import Path

from deploy.cluster.connection import NodeConnection
from deploy.rooted.commands import file_program, write_file
from tests.deploy.over_ssh.nodes import trusting
from tests.deploy.over_ssh.sshd import Sshd, listening, new_key
from tests.habits import needs
from tests.ports import free_port


def test_commands_of_any_length_on_dropbear(tmp_path: Path) -> None:
    needs.root("Dropbear takes authorized keys from the account's home alone")
    needs.mount_namespace()
    place = os.path.expanduser(f"~{getpass.getuser()}")
    if needs.PROJECT.is_relative_to(place):
        needs.skip("this test mounts a folder over the home that the checkout lies in")
    server = Sshd(free_port(), tmp_path)
    new_key(server.user_key)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / ".ssh").mkdir(mode=0o700)
    server.user_key.with_suffix(".pub").rename(home / ".ssh/authorized_keys").chmod(0o600)
    made = [str(needs.tool("dropbearkey")), "-t", "ed25519", "-f", f"{tmp_path}/host"]
    subprocess.run(made, check=True, capture_output=True)
    dropbear = [str(needs.tool("dropbear")), "-F", "-E", "-r", f"{tmp_path}/host"]
    dropbear += ["-p", f"127.0.0.1:{server.port}"]
    begun = f'mount --bind {shlex.quote(str(home))} "$HOME" && exec {shlex.join(dropbear)}'
    words = ("unshare", "--mount", "sh", "-c", begun)
    environment = os.environ | {"HOME": place}
    with listening(words, ("127.0.0.1", server.port), tmp_path / "log", environment):
        node = NodeConnection(server.address(), trusting(tmp_path, server))
        assert len(file_program()) > 9000
        content = os.urandom(200_000)
        written = node.run(write_file(f"{place}/written", 0o600), stdin=content)
        assert written.ok, written
        assert (home / "written").read_bytes() == content
        long = "'\"$x\n" + "x" * 50_000
        assert node.run(["printf", "%s", long], stdin=b"never read").text == long
        lines: list[str] = []
        assert node.stream(["printf", "%s\n", "y" * 20_000], lines.append) == 0
        assert lines == ["y" * 20_000]
        node.close()
