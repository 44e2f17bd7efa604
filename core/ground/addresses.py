"""What the name of a host may be, and its addresses as they are compared."""

import ipaddress
import re
from ipaddress import IPv4Address, IPv6Address

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_LONGEST = 253


def is_host_name(text: str) -> bool:
    """RFC 1123, with the underscore that some routers' names have."""
    return len(text) <= _LONGEST and all(map(_LABEL.fullmatch, text.removesuffix(".").split(".")))


def with_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an address of IPv6."""
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def plain_address(address: str) -> IPv4Address | IPv6Address:
    """Return the plain address, also of one that a dual socket shows as `::ffff:192.168.1.26`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
