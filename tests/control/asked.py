"""Requests for tests, read from what a client sends."""

from collections.abc import Mapping

from cluster.control.messages import Request, parse


def asked(
    method: str, target: str, headers: Mapping[str, str], client: str = "127.0.0.1", own: str = "127.0.0.1"
) -> Request:
    """A request as it is parsed."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return parse("\r\n".join(lines).encode(), client, own)
