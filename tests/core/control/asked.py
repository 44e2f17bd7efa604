"""Requests and served actions for tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from core.control.actions import Actions
from core.control.requests import Request, Rules, parse
from core.metrics import exporter


def asked(
    method: str,
    target: str,
    headers: Mapping[str, str],
    client: str = "127.0.0.1",
    own: str = "127.0.0.1",
) -> Request:
    """A request as it is parsed."""
    named = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"{method} {target} HTTP/1.1", *named, "", ""])
    return parse(head.encode(), client, own)


@contextmanager
def obeying(actions: Actions, rules: Rules | None = None, host: str = "127.0.0.1") -> Iterator[int]:
    """The metrics port of a process that does what it is asked."""
    serving = exporter.serve(
        CollectorRegistry(), host, 0, lambda: True, actions=actions, rules=rules
    )
    try:
        yield serving.port
    finally:
        serving.close()
