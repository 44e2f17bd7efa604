"""The messages of a WebSocket before its session, and a reason for each end."""

import asyncio
import hmac
from contextlib import suppress
from typing import Any

import pydantic_core
from starlette.websockets import WebSocket, WebSocketDisconnect

from recognise.service.limits import RequestError, StreamLimits, bad

POLICY = 1008
TOO_LARGE = 1009
BROKEN = 1011
RESTART = 1012
BUSY = 1013
"""Close codes: RFC 6455, and its registry for 1012 and 1013."""


def close_code(problem: RequestError) -> int:
    """Return the close code for a refusal: that of its status, or 1008."""
    return {413: TOO_LARGE, 500: BROKEN, 503: BUSY}.get(problem.status, POLICY)


def refusal(reason: str) -> str:
    """Return the event that says why a session ends."""
    return pydantic_core.to_json({"event": "refused", "error": reason}).decode()


async def text_of(websocket: WebSocket) -> str:
    """Return the next message. Raises RequestError, and WebSocketDisconnect at the end."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | None = message.get("text")
    if text is None:
        raise bad("expected text, got a binary message")
    return text


async def first_message(websocket: WebSocket, limits: StreamLimits) -> str:
    """Return the first message. Raises RequestError, and WebSocketDisconnect at its end."""
    seconds = limits.hello_seconds
    try:
        async with asyncio.timeout(seconds):
            return await text_of(websocket)
    except TimeoutError:
        raise bad(f"expected the first message within {seconds:g} s") from None


async def first_with_token(websocket: WebSocket, limits: StreamLimits, token: str) -> str:
    """Return the first message of a client that sent no header, if it names the token.

    Raises as `first_message` does. Nothing else of it is looked at.
    """
    text = await first_message(websocket, limits)
    try:
        document: Any = pydantic_core.from_json(text)
    except ValueError as problem:
        raise bad(
            f'expected {{"schema": 1, "token": ...}} as the first message: {problem!s:.100}'
        ) from None
    client_token = None
    if isinstance(document, dict):
        client_token = document.get("token")
    if not isinstance(client_token, str) or not hmac.compare_digest(
        client_token.encode(), token.encode()
    ):
        raise bad("expected token in the first message: the token that `fab serve` names")
    return text


async def refuse(websocket: WebSocket, problem: RequestError, seconds: float) -> None:
    """Say why a session ends, and close it. A client may read nothing for so long."""
    with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(seconds):
            await websocket.send_text(refusal(problem.message))
            await websocket.close(close_code(problem))


async def send(websocket: WebSocket, event: object) -> None:
    """Send an event. Raises WebSocketDisconnect, also where the server failed the connection."""
    try:
        await websocket.send_text(pydantic_core.to_json(event).decode())
    except RuntimeError:
        raise WebSocketDisconnect(BROKEN) from None
