"""Replies that brokers push to this client, matched with the pending requests.

Shared by all producers of a client instance: a broker addresses the client, not the producer.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.json.fields import whole_number
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.host_address import HostAddress
from broker_core.codec.records.message_record import LOCAL_HOST, MessageRecord
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RequestTimeout, SystemBusy
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 100_000


class ExpectedReply(NamedTuple):
    """A pending reply, and the properties of the request that asks for it."""

    future: asyncio.Future[ReceivedMessage]
    deadline: float
    properties: Mapping[str, str]

    async def reply(self) -> ReceivedMessage:
        """The reply. Raises `RequestTimeout`."""
        left_s = max(self.deadline - self.future.get_loop().time(), 0)
        try:
            return await asyncio.wait_for(self.future, left_s)
        except asyncio.TimeoutError:
            ttl = self.properties[names.TTL]
            raise RequestTimeout(f"the request was sent, no reply came within {ttl} ms") from None


class ReplyInbox:
    """Event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        # Topics whose brokers know that this client may wait for replies.
        self.announced: set[str] = set()

    @contextmanager
    def expect(self, client_id: str, timeout_ms: int) -> Iterator[ExpectedReply]:
        """Register a pending reply until the block ends."""
        if len(self._waiting) >= WAITING_MAX:
            raise SystemBusy(
                ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests wait for their replies already"
            )
        loop = asyncio.get_running_loop()
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[ReceivedMessage] = loop.create_future()
        self._waiting[correlation_id] = future
        properties = {
            names.CORRELATION_ID: correlation_id,
            names.REPLY_TO_CLIENT: client_id,
            names.TTL: str(timeout_ms),
        }
        try:
            yield ExpectedReply(future, loop.time() + timeout_ms / 1000, properties)
        finally:
            del self._waiting[correlation_id]
            future.cancel()

    def receive(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """PUSH_REPLY_MESSAGE_TO_CLIENT: complete the pending request."""
        message = _read(command)
        future = self._waiting.get(message.properties.get(names.CORRELATION_ID, ""))
        if future is None or future.done():
            # Answered with success: an error would only make the replier retry.
            _log.info("a reply came too late: %r", message)
        else:
            future.set_result(message)
        return command.reply()


def _read(command: RemotingCommand) -> ReceivedMessage:
    ext = command.ext
    topic = ext.get("topic", "")
    queue_id = _number(ext, "queueId")
    record = MessageRecord(
        topic,
        max(queue_id, 0),
        bytes(command.body),
        ext.get("properties", "").encode(),
        flag=_number(ext, "flag"),
        sys_flag=_number(ext, "sysFlag"),
        born_timestamp=_number(ext, "bornTimestamp"),
        born_host=_host(ext.get("bornHost", "")),
        store_timestamp=_number(ext, "storeTimestamp"),
        store_host=_host(ext.get("storeHost", "")),
    )
    return ReceivedMessage(record, MessageQueue(topic, "", max(queue_id, 0)))


def _number(ext: Mapping[str, str], name: str) -> int:
    return whole_number(ext.get(name) or "0", name)


def _host(text: str) -> HostAddress:
    """`ip:port` as an address, for display only."""
    ip, _, port = text.rpartition(":")
    if not ip or not port.isdecimal() or len(port) > 5:
        return LOCAL_HOST
    return ip.strip("/[]"), int(port)
