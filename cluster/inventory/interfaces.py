"""The addresses of this machine's network interfaces. The only module that knows `netifaces`."""

import netifaces


def interface_addresses() -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of every interface of this machine; none for one that is down or has no cable."""
    found: dict[str, tuple[str, ...]] = {}
    for name in netifaces.interfaces():
        try:
            entries = netifaces.ifaddresses(name).get(netifaces.AF_INET, [])
        except ValueError:  # the interface went away between the two calls
            continue
        found[name] = tuple(str(entry["addr"]) for entry in entries if "addr" in entry)
    return found
