"""The service as a client of an MQTT broker, which connects again after each lost connection.

The broker decides who may publish and who may read. The protocol is MQTT 5, because its client may
name the largest packet.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from core.control.door import RateLimitedLog
from core.errors import UsageError, reason_of

if TYPE_CHECKING:
    from recognise.service.live.devices import Devices, Publish

log = logging.getLogger(__name__)

PREFIX = "pscluster"
PORTS = {"mqtt": 1883, "mqtts": 8883}
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
_WAITING = 512
"""Messages that came and are not looked at yet."""
_HEAD_BYTES = 4096
"""A packet has so many bytes beside its payload."""
_LARGEST_CREDENTIALS = 4096
_LARGEST_AUTHORITY = 1 << 20


@dataclass(frozen=True)
class Broker:
    """A broker of MQTT: its address, and how to come in."""

    host: str
    port: int
    prefix: str = PREFIX
    tls: bool = False
    authority: str | None = None
    """Who signed its certificate, in PEM; None is the machine's own trust."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def broker_of(url: str, credentials: str | Path | None, authority: str | Path | None) -> Broker:
    """Return the broker at `mqtt[s]://HOST[:PORT][/PREFIX]`. Raises UsageError.

    `credentials` names a file with one line `USER:PASSWORD`, `authority` one with a certificate.
    """
    form = "--mqtt: expected mqtt://HOST or mqtts://HOST:PORT/PREFIX"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{form}, got {url!r:.80}") from None
    if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{form}, got {url!r:.80}")
    if parts.username is not None:
        raise UsageError(
            f"{form}; a command line shows a password to everybody: put it into --mqtt-credentials"
            " FILE"
        )
    prefix = parts.path.strip("/") or PREFIX
    if any(sign in prefix for sign in "+#\0") or not prefix.isprintable() or len(prefix) > 200:
        raise UsageError(f"{form}: a prefix is a topic without + and #, got {prefix!r:.80}")
    if authority and parts.scheme != "mqtts":
        raise UsageError("--mqtt-authority: expected it with mqtts://, got mqtt://")
    if authority and not Path(authority).is_file():
        raise UsageError(f"{authority}: expected a certificate in PEM format, found no file")
    found = Broker(
        parts.hostname,
        port or PORTS[parts.scheme],
        prefix,
        tls=parts.scheme == "mqtts",
        authority=_read_authority(Path(authority)) if authority else None,
    )
    if not credentials:
        return found
    user, password = _credentials(Path(credentials))
    return replace(found, user=user, password=password)


def _read_authority(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_AUTHORITY).decode("ascii", errors="ignore")
    except OSError as problem:
        raise UsageError(
            f"{path}: cannot be read ({reason_of(problem)}): check --mqtt-authority"
        ) from None


def _credentials(path: Path) -> tuple[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_CREDENTIALS).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(
            f"{path}: cannot be read ({reason_of(problem)}): check --mqtt-credentials"
        ) from None
    user, colon, password = text.strip().partition(":")
    if not user or not colon or "\n" in password:
        raise UsageError(f"{path}: expected one line, USER:PASSWORD")
    return user, password


async def follow(broker: Broker, largest_bytes: int, made: "Callable[[Publish], Devices]") -> None:
    """Take the messages that devices publish, until this is cancelled.

    `made` makes their sessions for each connection.
    """
    failed = RateLimitedLog(log, logging.WARNING)
    wait = FIRST_WAIT_SECONDS
    while True:
        try:
            async with _client(broker, largest_bytes) as client:
                wait = FIRST_WAIT_SECONDS
                await _take(client, broker, made)
        except (aiomqtt.MqttError, OSError) as problem:
            failed.say(
                f"the broker {broker.host}:{broker.port}: {problem!s:.200}; tried again every"
                f" {wait:.0f} s"
            )
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


async def _take(
    client: aiomqtt.Client, broker: Broker, made: "Callable[[Publish], Devices]"
) -> None:
    async def publish(topic: str, payload: bytes) -> None:
        # the connection is lost: `follow` learns of it too
        with contextlib.suppress(aiomqtt.MqttError):
            await client.publish(topic, payload)

    devices = made(publish)
    try:
        for each in devices.filters:
            await client.subscribe(each, qos=1)
        log.info(
            "takes readings at the broker %s:%d below %s/", broker.host, broker.port, broker.prefix
        )
        async for message in client.messages:
            devices.take(str(message.topic), bytes(message.payload))
    finally:
        devices.close()


def _client(broker: Broker, largest_bytes: int) -> aiomqtt.Client:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = largest_bytes + _HEAD_BYTES
    return aiomqtt.Client(
        broker.host,
        broker.port,
        username=broker.user,
        password=broker.password,
        protocol=aiomqtt.ProtocolVersion.V5,
        properties=properties,
        tls_context=ssl.create_default_context(cadata=broker.authority) if broker.tls else None,
        max_queued_incoming_messages=_WAITING,
        max_queued_outgoing_messages=_WAITING,
    )
