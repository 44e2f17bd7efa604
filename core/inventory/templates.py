"""The inventories that `fab init` writes to start from."""

import json
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from jinja2 import Template

from core.ground.addresses import is_host_name
from core.ground.errors import UsageError
from core.ground.ports import MOST_ROLES, free_ports
from core.inventory.loading import loads
from core.inventory.schema import MAXIMUM_NODES
from core.inventory.training_sections import RecipeName

_TEMPLATE = Path(__file__).with_name("init.yaml.j2")


def local_inventory(
    workers: int = 2,
    ps: int = 1,
    draw_ports: Callable[[int], Sequence[int]] = free_ports,
    *,
    cluster: str = "local",
    recipe: RecipeName = "shipped",
) -> str:
    """Return the text of an inventory for this machine alone.

    Every role has ports of its own from `draw_ports(count)`. Its training has the recipe's values.

    Raises UsageError when there is no worker or no parameter server, or more than this machine
    could ever run.
    """
    for count, plural in ((workers, "workers"), (ps, "parameter servers")):
        if not 1 <= count <= MOST_ROLES:
            raise UsageError(
                f"{count} {plural}: one machine simulates 1 to {MOST_ROLES} - choose another number"
            )
    roles = ["ps"] * ps + ["worker"] * workers + ["coordinator"]
    ports = draw_ports(2 * len(roles) + 1)
    return _rendered(cluster, roles=roles, ports=ports, recipe=recipe)


def hosts_inventory(hosts: str, user: str = "pi", *, cluster: str = "cluster") -> str:
    """Text of an inventory for machines reached over SSH, e.g. `hosts="192.168.1.16-31"`.

    The first host gets the storage, the parameter server and the coordinator, and all of them a
    worker. Raises UsageError when `hosts` cannot be read, InventoryError when the hosts make no
    cluster.
    """
    addresses = expand_hosts(hosts)
    return _rendered(
        cluster,
        hosts=[*zip(_node_names(addresses), addresses, strict=True)],
        user=json.dumps(user),
        recipe="unseen",
    )


def _rendered(cluster: str, **facts: object) -> str:
    """The inventory, checked: names and users come from the command line. Raises InventoryError."""
    text = _TEMPLATE.read_text(encoding="utf-8")
    template = Template(text, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    rendered = template.render(cluster=json.dumps(cluster), **facts)
    loads(rendered, "fab init", (), path=Path("fab-init"), machine=None)
    return rendered


def _node_names(addresses: Sequence[str]) -> list[str]:
    """A host name's first part where all of these differ and are names; numbers otherwise."""
    labels = [address.partition(".")[0] for address in addresses]
    if len(set(labels)) == len(labels) and not any(label.isdigit() for label in labels):
        return labels
    digits = max(2, len(str(len(addresses))))
    return [f"node{position:0{digits}d}" for position in range(1, len(addresses) + 1)]


_REMEDY = "write addresses, ranges and host names with commas, e.g. 192.168.1.16-31,nas.local"


def expand_hosts(hosts: str) -> tuple[str, ...]:
    """Every address and host name, in the order given.

    Raises UsageError when one is neither or comes twice.
    """
    expanded_hosts: list[str] = []
    for part in hosts.split(","):
        expanded_hosts += _expand(part.strip())
        if len(expanded_hosts) > MAXIMUM_NODES:
            raise UsageError(f"--hosts {hosts!r}: more than {MAXIMUM_NODES} hosts - {_REMEDY}")
    twice = sorted({host for host in expanded_hosts if expanded_hosts.count(host) > 1})
    if twice:
        raise UsageError(f"--hosts {hosts!r}: {', '.join(twice)} given twice - name each host once")
    return tuple(expanded_hosts)


def _expand(part: str) -> list[str]:
    first_text, dash, last_text = part.rpartition("-")
    try:
        if not dash:
            return [str(IPv4Address(part))]
        first = IPv4Address(first_text)
        last = IPv4Address(
            last_text if "." in last_text else f"{first_text.rpartition('.')[0]}.{last_text}"
        )
    except AddressValueError:
        if is_host_name(part) and not set(part) <= set("0123456789.-"):
            return [part]
        raise UsageError(
            f"--hosts: {part!r} is neither an IPv4 address, nor a range, nor a name - {_REMEDY}"
        ) from None
    if not 0 <= int(last) - int(first) < MAXIMUM_NODES:
        raise UsageError(
            f"--hosts: {part!r} runs from {first} to {last}, not 1 to {MAXIMUM_NODES} hosts -"
            f" {_REMEDY}"
        )
    return [str(IPv4Address(number)) for number in range(int(first), int(last) + 1)]
