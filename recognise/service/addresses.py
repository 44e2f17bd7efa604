"""This machine's addresses as clients use them: in a certificate, and in the link to the page."""

import ipaddress
import socket
from typing import TypeAlias

import psutil

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PRIVATE: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
    )
)
"""Loopback and the networks that no router of the Internet forwards."""


def private_addresses() -> list[Address]:
    """Return this machine's private addresses, IPv4 first and loopback last."""
    kinds = (socket.AF_INET, socket.AF_INET6)
    texts = {
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family in kinds
    }
    addresses = {ipaddress.ip_address(text) for text in texts if "%" not in text}
    private = [address for address in addresses if any(address in network for network in PRIVATE)]
    return sorted(private, key=lambda address: (address.is_loopback, address.version, int(address)))


def reachable(listen: str) -> str:
    """Return the address that a client types for a service that listens at `listen`."""
    address = ipaddress.ip_address(listen)
    if address.is_unspecified:
        candidates = [
            candidate for candidate in private_addresses() if candidate.version == address.version
        ]
        if candidates:
            address = candidates[0]
    return str(address)
