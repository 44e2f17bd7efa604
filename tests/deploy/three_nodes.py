"""An inventory of three nodes that are one sshd, at an address of its own each."""

import getpass
from pathlib import Path

from tests.deploy.over_ssh.sshd import Sshd

THREE = """\
schema: 1
cluster: three
connection: ssh
ssh: {{user: {user}, port: {port}, key: "{key}"}}
storage: {{server: pi-1}}
nodes:
  - name: pi-1
    address: 10.77.0.1
    ssh: {{address: 127.0.0.2}}
    roles: [storage, ps, coordinator]
  - {{name: pi-2, address: 10.77.0.2, ssh: {{address: 127.0.0.3}}, roles: [worker]}}
  - {{name: pi-3, address: 10.77.0.3, ssh: {{address: 127.0.0.4}}, roles: [worker]}}
jobs: {{pi: {{samples: 1000}}}}
"""
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
"""What the sshd listens on: the three, and the one where it is asked for itself."""


def write(folder: Path, text: str, sshd: Sshd) -> None:
    """The inventory, where commands are typed."""
    filled = text.format(user=getpass.getuser(), port=sshd.port, key=sshd.user_key)
    (folder / "inventory.yaml").write_text(filled)
