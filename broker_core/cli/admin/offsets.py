"""`rmq admin offset …`: move the progress of consumer groups."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Mapping
from typing import Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import Report, Table
from broker_core.cli.admin.session import AdminSession, group_option, topic_option
from broker_core.client.admin.offsets import clone_group, member_positions, reset_queue
from broker_core.client.pull.queue_offsets import EARLIEST_MS, LATEST_MS
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import InvalidArgument

ACCEPTED: Final = (
    "earliest, latest, now, epoch milliseconds, or a time like 2026-11-16T08:00:00 (local, or with "
    "+00:00)"
)

_WHOLE = re.compile(r"[0-9]{1,18}")
_MQADMIN = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d)(?::(\d{1,3}))?")


def parse_time(text: str) -> int:
    """Epoch milliseconds, `EARLIEST_MS` or `LATEST_MS`.

    mqadmin's spellings and the `@TIME` of `rmq consume` work, too.
    """
    text = text.strip().removeprefix("@")
    lowered = text.lower()
    if lowered in ("earliest", "beginning"):
        return EARLIEST_MS
    if lowered in ("latest", "end", "now", "currenttimemillis", "-1"):
        return LATEST_MS
    if _WHOLE.fullmatch(lowered):
        return int(lowered)
    written = _MQADMIN.fullmatch(text)
    if written is not None:
        text = f"{written[1]}T{written[2]}.{(written[3] or '0').zfill(3)}"
    try:
        # Before 3.11 the Z of UTC is not understood.
        moment = datetime.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not {ACCEPTED}") from None


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 0")
    return int(text)


# reset


def _reset_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    topic_option(parser)
    parser.add_argument("-s", "--to", type=parse_time, metavar="TIME", help=f"where to: {ACCEPTED}")
    parser.add_argument("-b", "--broker", metavar="NAME", help="for --queue: the broker's name")
    parser.add_argument("-q", "--queue", type=_whole, metavar="N", help="this queue only")
    parser.add_argument(
        "-o", "--offset", type=_whole, metavar="N", help="for --queue: the next offset to consume"
    )


async def _reset(session: AdminSession, options: argparse.Namespace) -> Report:
    if (options.to is None) == (options.offset is None):
        raise InvalidArgument("say where to: either --to TIME, or --queue N --offset N")
    if options.offset is None:
        if options.queue is not None or options.broker is not None:
            raise InvalidArgument("--queue and --broker are for --offset; --to moves every queue")
        found = await session.admin.reset_offsets(options.group, options.topic, options.to)
        return [_offsets(found)]
    if options.queue is None:
        raise InvalidArgument("--offset is for one queue: give --queue N, too")
    queue = await _queue(session, options)
    return [_offsets({queue: await reset_queue(
        session.admin, options.group, queue, options.offset)})]  # fmt: skip


async def _queue(session: AdminSession, options: argparse.Namespace) -> MessageQueue:
    queues = [
        queue
        for queue in await session.admin.queues(options.topic)
        if queue.queue_id == options.queue and options.broker in (None, queue.broker_name)
    ]
    if not queues:
        raise InvalidArgument(f"topic {options.topic} has no such queue {options.queue}")
    if len(queues) > 1:
        names = ", ".join(queue.broker_name for queue in queues)
        raise InvalidArgument(f"queue {options.queue} is on {names}: name one with --broker")
    return queues[0]


def _offsets(found: Mapping[MessageQueue, int]) -> Table:
    columns = ("topic", "broker", "queue", "offset")
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, offset)
        for queue, offset in sorted(found.items())
    ]
    return Table(columns, rows)


RESET: Final = AdminVerb(
    _reset_arguments,
    _reset,
    """\
  rmq admin offset reset -g billing -t orders --to earliest
  rmq admin offset reset -g billing -t orders --to 2026-11-16T08:00:00
  rmq admin offset reset -g billing -t orders --queue 0 --offset 1200
  rmq admin resetOffsetByTime -g billing -t orders -s 2026-11-16#08:00:00:000""",
)


# skip


def _skip_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    topic_option(parser)


async def _skip(session: AdminSession, options: argparse.Namespace) -> Report:
    return [_offsets(await session.admin.reset_offsets(options.group, options.topic, LATEST_MS))]


SKIP: Final = AdminVerb(
    _skip_arguments,
    _skip,
    """\
  rmq admin offset skip -g billing -t orders
  rmq admin skipAccumulatedMessage -g billing -t orders""",
)


# clone


def _clone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--from", required=True, dest="source", help="the group to copy")
    parser.add_argument("-d", "--to", required=True, dest="target", help="the group to move")
    topic_option(parser)


async def _clone(session: AdminSession, options: argparse.Namespace) -> Report:
    copied = await clone_group(session.admin, options.source, options.target, options.topic)
    if not copied:
        raise InvalidArgument(f"group {options.source} has no offset in topic {options.topic}")
    return [_offsets(copied)]


CLONE: Final = AdminVerb(
    _clone_arguments,
    _clone,
    """\
  rmq admin offset clone --from billing --to audit -t orders
  rmq admin cloneGroupOffset -s billing -d audit -t orders""",
)


# positions


def _positions_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    topic_option(parser)
    parser.add_argument("-i", "--client", default="", metavar="ID", help="this member only")


async def _positions(session: AdminSession, options: argparse.Namespace) -> Report:
    found = await member_positions(session.admin, options.group, options.topic, options.client)
    rows = [
        (client, queue.broker_name, queue.queue_id, offset)
        for client, queues in sorted(found.items())
        for queue, offset in sorted(queues.items())
    ]
    return [Table(("clientId", "broker", "queue", "offset"), rows)]


POSITIONS: Final = AdminVerb(
    _positions_arguments,
    _positions,
    """\
  rmq admin offset positions -g billing -t orders
  rmq admin getConsumerStatus -g billing -t orders""",
)
