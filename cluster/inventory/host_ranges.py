"""`192.168.1.16-31,192.168.1.40,nas.local`: the hosts that `fab init --hosts` names."""

from ipaddress import AddressValueError, IPv4Address

from cluster.errors import UsageError
from cluster.inventory.addresses import is_host_name
from cluster.inventory.schema import MAXIMUM_NODES

_REMEDY = "write addresses, ranges and host names with commas, e.g. 192.168.1.16-31,nas.local"


def expand_hosts(hosts: str) -> tuple[str, ...]:
    """Every address and host name, in the order given. Raises UsageError when one is neither or comes twice."""
    found: list[str] = []
    for part in hosts.split(","):
        found += _expand(part.strip())
        if len(found) > MAXIMUM_NODES:
            raise UsageError(f"--hosts {hosts!r}: more than {MAXIMUM_NODES} hosts - {_REMEDY}")
    twice = sorted({host for host in found if found.count(host) > 1})
    if twice:
        raise UsageError(f"--hosts {hosts!r}: {', '.join(twice)} given twice - name each host once")
    return tuple(found)


def _expand(part: str) -> list[str]:
    first_text, dash, last_text = part.rpartition("-")
    try:
        if not dash:
            return [str(IPv4Address(part))]
        first = IPv4Address(first_text)
        last = IPv4Address(last_text if "." in last_text else f"{first_text.rpartition('.')[0]}.{last_text}")
    except AddressValueError:
        if is_host_name(part) and not set(part) <= set("0123456789.-"):
            return [part]
        raise UsageError(f"--hosts: {part!r} is neither an IPv4 address, nor a range, nor a name - {_REMEDY}") from None
    if not 0 <= int(last) - int(first) < MAXIMUM_NODES:
        raise UsageError(f"--hosts: {part!r} runs from {first} to {last}, not 1 to {MAXIMUM_NODES} hosts - {_REMEDY}")
    return [str(IPv4Address(number)) for number in range(int(first), int(last) + 1)]
