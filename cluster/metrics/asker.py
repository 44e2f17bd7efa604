"""Who asks on a metrics port: the machine itself, a node we know, or anybody else."""

import ipaddress


def may_ask(client: str, own: str, *known: str) -> bool:
    """Whether `client`, on a connection to our address `own`, is this machine or has one of the addresses `known`."""
    asking = _plain(client)
    return asking.is_loopback or asking in map(_plain, (own, *known))


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, an IPv4 one also where a socket for both protocols shows it as `::ffff:192.168.1.26`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
