"""`rmq admin message …`: find messages, show their delivery, send one, push one to a consumer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Final

from broker_core.cli.admin.offsets import parse_time
from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import EpochMs, Facts, Report, Table
from broker_core.cli.admin.session import AdminSession, topic_option
from broker_core.cli.command_parser import count, key_and_value
from broker_core.client.admin.messages import consume_directly, message_track
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import InvalidArgument, QueryNotFound
from broker_core.protocol_codes import ResponseCode

_GROUP: Final = "RMQ_ADMIN"
_COUNT: Final = 32
_BODY_SHOWN: Final = 60


def _received(record: Any, broker: str = "") -> ReceivedMessage:
    return ReceivedMessage(record, MessageQueue(record.topic, broker, record.queue_id))


def _body(message: ReceivedMessage, size: int | None = None) -> str:
    text = bytes(message.body).decode("utf-8", "backslashreplace")
    return text if size is None or len(text) <= size else f"{text[:size]}…"


def _facts(message: ReceivedMessage, title: str = "message") -> Facts:
    record = message.record
    return Facts(
        {
            "topic": message.topic,
            "messageId": message.message_id,
            "offsetId": message.offset_message_id,
            "tags": message.tags,
            "keys": message.keys,
            "queue": record.queue_id,
            "offset": message.queue_offset,
            "position": record.physical_offset,
            "bornTime": EpochMs(message.born_timestamp),
            "bornHost": ":".join(map(str, record.born_host)),
            "storeTime": EpochMs(message.store_timestamp),
            "storeHost": ":".join(map(str, record.store_host)),
            "systemFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "properties": [f"{key}={value}" for key, value in message.properties.items()],
            "body": _body(message),
        },
        title,
    )


def _table(messages: Iterable[ReceivedMessage]) -> Table:
    columns = ("queue", "offset", "messageId", "storeTime", "tags", "keys", "body")
    rows = [
        (message.record.queue_id, message.queue_offset, message.message_id,
         EpochMs(message.store_timestamp), message.tags, message.keys, _body(message, _BODY_SHOWN))
        for message in messages
    ]  # fmt: skip
    return Table(columns, rows)


async def _whole(session: AdminSession, message: ReceivedMessage) -> Report:
    tracks = await message_track(session.admin, message.record)
    rows = [(track.group, track.kind, track.problem) for track in tracks]
    return [_facts(message), Table(("group", "state", "problem"), rows, "consumed by")]


# by id


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    parser.add_argument(
        "-i", "--id", required=True, help="the message id, the client's or the broker's"
    )
    parser.add_argument("-g", "--group", help="deliver it to a consumer of this group")
    parser.add_argument(
        "-d", "--client", default="", metavar="ID", help="client id of the consumer"
    )


async def _by_id(session: AdminSession, options: argparse.Namespace) -> Report:
    message = await _find(session, options.topic, options.id)
    if options.group:
        answer = await consume_directly(
            session.admin, message.record, options.group, options.client
        )
        return [Facts(dict(answer), "consumed")]
    return await _whole(session, message)


async def _find(session: AdminSession, topic: str, message_id: str) -> ReceivedMessage:
    """By the client's id, which survives retries, else by the broker's."""
    admin = session.admin
    found = await admin.query_messages(topic, message_id, is_unique_id=True)
    if found:
        return _received(found[0])
    try:
        return _received(await admin.view_message(message_id, topic))
    except InvalidArgument:
        text = f"topic {topic} has no message {message_id:.80}"
        raise QueryNotFound(ResponseCode.QUERY_NOT_FOUND, text) from None


BY_ID: Final = AdminVerb(
    _id_arguments,
    _by_id,
    """\
  rmq admin message show -t orders -i 7F0000010FA018B4AAC2089BC3780000
  rmq admin queryMsgById -t orders -i 7F00000100002A9F0000000000000000
  rmq admin message show -i 7F0000010FA018B4AAC2089BC3780000 -t orders \\
      -d 10.0.0.9@4711""",
)


# by key


def _key_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    parser.add_argument("-k", "--key", required=True, help="one of the message's keys")
    parser.add_argument(
        "-m",
        "--max",
        type=count,
        default=_COUNT,
        metavar="N",
        help="maximum number of messages (default: 32)",
    )
    parser.add_argument("--begin", type=parse_time, default=0, metavar="TIME", help="stored since")
    parser.add_argument("--end", type=parse_time, metavar="TIME", help="stored until")


async def _by_key(session: AdminSession, options: argparse.Namespace) -> Report:
    end = None if options.end is None or options.end < 0 else options.end
    found = await session.admin.query_messages(
        options.topic, options.key, max_count=options.max, begin_ms=options.begin, end_ms=end
    )
    if not found:
        text = f"topic {options.topic} has no message with key {options.key!r:.80}"
        raise QueryNotFound(ResponseCode.QUERY_NOT_FOUND, text)
    return [_table(map(_received, found))]


BY_KEY: Final = AdminVerb(
    _key_arguments,
    _by_key,
    """\
  rmq admin message by-key -t orders -k 4711
  rmq admin queryMsgByKey -t orders -k 4711 --begin 2026-11-16T00:00:00 --json""",
)


# by offset, print


def _place_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    topic_option(parser)
    parser.add_argument("-b", "--broker", metavar="NAME", help="the broker's name")
    parser.add_argument(
        "-i", "--queue", type=_number, required=required, metavar="N", help="the queue"
    )


def _offset_arguments(parser: argparse.ArgumentParser) -> None:
    _place_arguments(parser, required=True)
    parser.add_argument("-o", "--offset", type=_number, required=True, metavar="N", help="where")


async def _by_offset(session: AdminSession, options: argparse.Namespace) -> Report:
    [queue] = await _queues(session, options, only_one=True)
    consumer = PullConsumer(session.admin.client, _GROUP)
    result = await consumer.pull(queue, options.offset, max_count=1)
    for message in result.messages:
        if message.queue_offset == options.offset:
            return await _whole(session, message)
    text = (
        f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} has no message "
        f"{options.offset}: it holds {result.min_offset} to {result.max_offset} (exclusive)"
    )
    raise QueryNotFound(ResponseCode.QUERY_NOT_FOUND, text)


BY_OFFSET: Final = AdminVerb(
    _offset_arguments,
    _by_offset,
    "  rmq admin message by-offset -t orders -b broker-a -i 0 -o 1200",
)


def _print_arguments(parser: argparse.ArgumentParser) -> None:
    _place_arguments(parser, required=False)
    parser.add_argument("-o", "--offset", type=_number, metavar="N", help="from this offset on")
    parser.add_argument("--begin", type=parse_time, metavar="TIME", help="stored since")
    parser.add_argument(
        "-c", "--count", type=count, default=_COUNT, metavar="N",
        help="maximum number of messages of each queue (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "-s", "--expression", default="*", metavar="TAGS", help="tags like 'a || b' (default: *)"
    )


async def _print(session: AdminSession, options: argparse.Namespace) -> Report:
    consumer = PullConsumer(session.admin.client, _GROUP)
    messages: list[ReceivedMessage] = []
    for queue in await _queues(session, options, only_one=False):
        offset = await _start(consumer, queue, options)
        end, taken = await consumer.max_offset(queue), 0
        while offset < end and taken < options.count:
            left = min(options.count - taken, _COUNT)
            result = await consumer.pull(
                queue, offset, max_count=left, expression=options.expression
            )
            if result.next_offset <= offset:
                break
            messages += result.messages
            taken += len(result.messages)
            offset = result.next_offset
    return [_table(messages)]


async def _start(consumer: PullConsumer, queue: MessageQueue, options: argparse.Namespace) -> int:
    low = await consumer.min_offset(queue)
    if options.offset is not None:
        return max(low, int(options.offset))
    if options.begin is not None:
        return await consumer.offset_by_time(queue, options.begin)
    return low


PRINT: Final = AdminVerb(
    _print_arguments,
    _print,
    """\
  rmq admin message list -t orders
  rmq admin message list -t orders -i 0 -o 1200 -c 5
  rmq admin printMsg -t orders -s 'new || paid' --json""",
)


# send


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    parser.add_argument("-p", "--body", required=True, help="the body, as text")
    parser.add_argument("-k", "--keys", default="", help="keys, separated by spaces")
    parser.add_argument("-c", "--tags", default="", help="the tag")
    parser.add_argument("-b", "--broker", metavar="NAME", help="the broker's name")
    parser.add_argument("-i", "--queue", type=_number, metavar="N", help="the queue")
    parser.add_argument(
        "--property", type=key_and_value, action="append", default=[], dest="properties",
        metavar="KEY=VALUE", help="a property; may be repeated",
    )  # fmt: skip


async def _send(session: AdminSession, options: argparse.Namespace) -> Report:
    async with Producer(session.admin.client, _GROUP) as producer:
        queue = None
        if options.queue is not None or options.broker is not None:
            [queue] = await _queues(session, options, only_one=True)
        sent = await producer.send(
            options.topic,
            options.body.encode("utf-8", "surrogateescape"),
            tags=options.tags,
            keys=options.keys,
            properties=dict(options.properties),
            queue=queue,
        )
    columns = ("broker", "queue", "offset", "status", "messageId", "offsetId")
    row = (sent.queue.broker_name, sent.queue.queue_id, sent.queue_offset, sent.status.value,
           sent.msg_id, sent.offset_msg_id)  # fmt: skip
    return [Table(columns, [row])]


SEND: Final = AdminVerb(
    _send_arguments,
    _send,
    """\
  rmq admin message send -t orders -p 'hello' -k 4711
  rmq admin sendMessage -t orders -p 'hello' -b broker-a -i 0""",
)


async def _queues(
    session: AdminSession, options: argparse.Namespace, *, only_one: bool
) -> list[MessageQueue]:
    found = [
        queue
        for queue in await session.admin.queues(options.topic)
        if options.queue in (None, queue.queue_id) and options.broker in (None, queue.broker_name)
    ]
    if not found:
        raise InvalidArgument(f"topic {options.topic} has no such queue")
    if only_one and len(found) > 1:
        places = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in found[:8])
        raise InvalidArgument(f"several queues are meant ({places}): name --broker and --queue")
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 0")
    return int(text)
