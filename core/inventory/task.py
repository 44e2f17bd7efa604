"""One role process of the cluster as the others address it."""

from dataclasses import dataclass
from typing import Literal

RoleName = Literal["ps", "worker", "coordinator"]
"""Roles that are a process with a TensorFlow port. (`storage` is a role of a node too, but has no
process of ours.)"""

ROLE_NAMES: tuple[RoleName, ...] = ("ps", "worker", "coordinator")


@dataclass(frozen=True)
class Task:
    """A role process.

    `role` and `index` name it, `host` and `port` are where TensorFlow reaches it.
    """

    role: RoleName
    index: int
    node: str
    host: str
    port: int
    metrics_port: int
    page_port: int | None = None
    """The port of the live page; the coordinator alone has one."""

    @property
    def name(self) -> str:
        """Role and index, e.g. `worker:1`."""
        return f"{self.role}:{self.index}"

    @property
    def address(self) -> str:
        """Host and port of the TensorFlow server, e.g. `192.168.1.26:2222`."""
        return f"{self.host}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """Host and port of `/metrics` and `/ready`, e.g. `192.168.1.26:9200`."""
        return f"{self.host}:{self.metrics_port}"
