"""Ports for what a test starts: no other test's, and none that the kernel gives to connections.

`tests/conftest.py` gives each test process a share of them.
"""

from core.inventory.templates import free_ports

__all__ = ["free_port", "free_ports"]


def free_port() -> int:
    """A port on which nothing listens."""
    (port,) = free_ports(1)
    return port
