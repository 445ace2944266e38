"""Stored messages by id and by key.

An id contains the address of its broker. Ids are untrusted input, so the client only connects to
addresses that the name servers list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.records.record_layout import I32
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    CorruptRecord,
    InvalidArgument,
    QueryNotFound,
    RemoteError,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode


async def view_message(client: ClientInstance, offset_msg_id: str, topic: str) -> MessageRecord:
    """The message that an offset id names."""
    (host, port), position = decode_message_id(offset_msg_id)
    advertised = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    info = await client.name_servers.cluster_info()
    known = {address for broker in info.brokers.values() for address in broker.addresses.values()}
    if advertised not in known:
        text = f"message id {offset_msg_id} names {advertised}, which no name server lists"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    ext = {"offset": str(position)}
    if topic:
        ext["topic"] = topic
    command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext)
    address = client.routes.rewritten(advertised)
    answer = await client.remoting.request(address, command, client.config.request_timeout_ms)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        text = answer.remark or f"no message {offset_msg_id}"
        raise QueryNotFound(ResponseCode.QUERY_NOT_FOUND, text)
    [record] = _records(checked(answer), 1)
    return record


async def query_messages(
    client: ClientInstance,
    queues: Iterable[MessageQueue],
    topic: str,
    key: str,
    max_count: int,
    begin_ms: int,
    end_ms: int | None,
    is_unique_id: bool,
) -> list[MessageRecord]:
    """Messages with a key, from every broker of the topic."""
    brokers = sorted({queue.broker_name for queue in queues})
    ext = _question(topic, key, max_count, begin_ms, end_ms, is_unique_id)
    answers = await asyncio.gather(*(_query_one(client, broker, dict(ext)) for broker in brokers))
    found = [record for answer in answers if answer for record in _records(answer)]
    records = [record for record in found if record.topic == topic]
    records.sort(key=lambda record: (record.store_timestamp, record.physical_offset))
    return records[:max_count]


async def query_index(
    client: ClientInstance, broker: str, topic: str, key: str, max_count: int
) -> tuple[list[MessageRecord], bool]:
    """The messages of one broker with a key, and whether these are all of them.

    The index stores hashes of topic and key. Apache's brokers return every message with the same
    hash, so messages of other topics and keys count towards the limit of an answer.
    """
    answer = await _query_one(client, broker, _question(topic, key, max_count, 0, None, False))
    if answer is None:
        return [], True
    found = _records(answer)
    is_complete = answer.ext.get("isComplete", "true") == "true" and len(found) < max_count
    return [record for record in found if record.topic == topic], is_complete


def _question(
    topic: str, key: str, max_count: int, begin_ms: int, end_ms: int | None, is_unique_id: bool
) -> dict[str, str]:
    if not key:
        raise InvalidArgument("the key is empty")
    return {
        "topic": topic,
        "key": key,
        "maxNum": str(max_count),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(I64_MAX if end_ms is None else end_ms),
        "_UNIQUE_KEY_QUERY": "true" if is_unique_id else "false",
    }


async def _query_one(
    client: ClientInstance, broker: str, ext: dict[str, str]
) -> RemotingCommand | None:
    """The answer of one broker; None when it has no such message and has looked everywhere."""
    command = RemotingCommand(RequestCode.QUERY_MESSAGE, ext)
    answer = await client.request_broker(broker, command, or_any=True)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return answer if answer.ext.get("isComplete") == "false" else None
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
    return answer


def _records(answer: RemotingCommand, count: int | None = None) -> list[MessageRecord]:
    """The records of a body, each checked."""
    records = []
    start, body = 0, answer.body
    try:
        while start < len(body):
            record = decode_record(body, start, limit=_end_of(body, start))
            records.append(record)
            start = _end_of(body, start)
    except (CorruptRecord, InvalidArgument, ValueError) as error:
        raise UnexpectedAnswer(f"a broker sent a message that cannot be read: {error}") from None
    if count is not None and len(records) != count:
        raise UnexpectedAnswer(f"a broker sent {len(records)} messages, {count} were asked for")
    return records


def _end_of(body: bytes | memoryview, start: int) -> int:
    if start + I32.size > len(body):
        raise InvalidArgument("the body ends inside a record")
    end: int = start + I32.unpack_from(body, start)[0]
    if not start < end <= len(body):
        raise InvalidArgument("a record ends outside the body")
    return end
