"""What a machine that is in no inventory reaches."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.lab.lab import Lab


def open_to_strangers(lab: Lab, ports: Sequence[int]) -> list[str]:
    """Where an address of no inventory can connect; that SSH answers shows that any could."""
    ask = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[2:]):\n"
        "    try:\n"
        "        socket.create_connection((sys.argv[1], port), timeout=1).close()\n"
        "        print(port)\n"
        "    except OSError:\n"
        "        pass\n"
    )

    def asked(address: str) -> list[str]:
        words = (sys.executable, "-c", ask, address, *map(str, (22, *ports)))
        return lab.outsider(*words).stdout.split()

    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        answers = dict(
            zip(
                lab.nodes,
                pool.map(asked, [node.address for node in lab.nodes.values()]),
                strict=True,
            )
        )
    assert all(found[:1] == ["22"] for found in answers.values()), answers
    return [f"{name}:{port}" for name, found in answers.items() for port in found[1:]]
