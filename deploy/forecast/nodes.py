"""How much memory the nodes of a cluster have."""

import re
from collections.abc import Mapping

from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.converge.survey import survey

_TOTAL = re.compile(r"MemTotal:\s+(\d{1,12}) kB\s*")


def memory_of_nodes(fleet: Fleet) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the bytes of memory of the nodes that answer, and why each other one does not."""
    answers = survey(fleet, _total)
    bytes_by_node = {name: total for name, total in answers.facts.items() if total}
    silent = {
        name: "does not say how much memory it has"
        for name, total in answers.facts.items()
        if not total
    }
    return bytes_by_node, silent | {
        name: str(failure.last_lines[0]) for name, failure in answers.lost.items()
    }


def _total(node: Connector) -> int:
    """Return the bytes of memory, 0 where the node's answer is none."""
    node.open()
    match = _TOTAL.fullmatch(node.run(["grep", "-m", "1", "MemTotal:", "/proc/meminfo"]).text)
    if match:
        return 1024 * int(match[1])
    return 0
