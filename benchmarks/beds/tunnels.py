"""The tunnel of `transport: wireguard` between machines of the bed, in user space.

It is what `deploy.render.network` renders for nodes, with a folder in the place of /etc.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.beds import virtual_network
from core.inventory import Inventory
from deploy.render.network import (
    PEERS_PATH,
    PRIVATE_KEY,
    TUNNEL_INTERFACE,
    tunnel_peers,
    tunnel_script,
)
from tools.debian_tools import COMMAND, find, search_path

_UP = """
set -e
mount -t tmpfs none /run
mkdir -p /run/wireguard
wireguard-go --foreground "$1" 2>/dev/null &
sh "$2" "$3" "$4"
echo up
wait
"""


def why_not() -> str:
    """The reason why this machine cannot make them; empty if it can."""
    missing = [name for name in ("wg", "wireguard-go") if find(name) is None]
    if missing:
        return f"a tunnel needs {' and '.join(missing)}: `{COMMAND}` fetches them"
    return virtual_network.why_not()


@contextmanager
def tunnels(
    inventory: Inventory, prefixes: Mapping[str, Sequence[str]], folder: Path
) -> Iterator[None]:
    """The interfaces of these nodes, whose commands begin with `prefixes`, until the block ends."""
    private = {node: _wg("genkey") for node in prefixes}
    keys = {node: _wg("pubkey", key).strip() for node, key in private.items()}
    with ExitStack() as stack:
        for node, prefix in prefixes.items():
            own = folder / node
            own.mkdir()
            (own / "private").write_text(private[node])
            (own / "peers").write_text(tunnel_peers(inventory, node, keys))
            script = tunnel_script()
            for path, name in ((PRIVATE_KEY, "private"), (PEERS_PATH, "peers")):
                script = script.replace(path, str(own / name))
            (own / "apply").write_text(script)
            stack.enter_context(_interface(inventory, node, prefix, own / "apply"))
        yield


@contextmanager
def _interface(
    inventory: Inventory, node: str, prefix: Sequence[str], apply: Path
) -> Iterator[None]:
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _UP, "sh")
    address = f"{inventory.hosts[node]}/16"
    words = (*prefix, *apart, TUNNEL_INTERFACE, str(apply), address, str(inventory.wireguard.mtu))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "up\n":
                raise RuntimeError(f"the tunnel of {node} did not come up")
            yield
        finally:
            process.kill()  # unshare takes no SIGTERM; its child dies with it


def _wg(verb: str, given: str = "") -> str:
    return subprocess.run(
        ["wg", verb], input=given, env=_environment(), capture_output=True, text=True, check=True
    ).stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": search_path()}
