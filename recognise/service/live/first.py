"""The first message of a WebSocket, before anything of sessions is imported for it."""

import asyncio
import hmac
from contextlib import suppress
from typing import Any

import pydantic_core
from starlette.websockets import WebSocket, WebSocketDisconnect

from recognise.service.limits import RequestError, StreamLimits, bad
from recognise.service.live.sockets import RESTART, SERVICE_ENDS, close_code, refusal


async def text_of(websocket: WebSocket) -> str | None:
    """Return the next message, or None when the service ends. Raises RequestError."""
    message = await websocket.receive()
    if message.get("reason") == SERVICE_ENDS:
        return None
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
            text = await text_of(websocket)
    except TimeoutError:
        raise bad(f"expected the first message within {seconds:g} s") from None
    if text is None:  # it has no stream yet
        await websocket.close(RESTART)
        raise WebSocketDisconnect(RESTART)
    return text


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
    with suppress(TimeoutError, WebSocketDisconnect):
        async with asyncio.timeout(seconds):
            await websocket.send_text(refusal(problem.message))
            await websocket.close(close_code(problem))
