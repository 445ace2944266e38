"""`rmq consume`: prints the stored messages of a topic, and new ones as they arrive."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from broker_core.cli.client_session import cluster_errors, run_client
from broker_core.cli.cluster_options import add_cluster_options, given_cluster
from broker_core.cli.command_parser import count, topic_name
from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.cli.messages.format import Render, json_line, parse_format
from broker_core.cli.messages.group_reader import GroupReader
from broker_core.cli.messages.offset_option import (
    ACCEPTED,
    PositionKind,
    StartPosition,
    parse_position,
)
from broker_core.cli.messages.outlet import MessageOutlet
from broker_core.cli.messages.topic_reader import TopicReader
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance

EXAMPLES: Final = """\
  rmq consume -t orders -o earliest -e
  rmq consume -t orders -o -10 -f '%p:%o %T %k\\t%s\\n'
  rmq consume -t orders -o @2024-05-31T14:00:00 --json -c 100
  rmq consume -t orders -G billing   shares the topic with the group's members

format:
  %t topic   %p queue id   %o offset       %b broker name
  %k keys    %g tags       %h properties   %i message id
  %s body    %S its size   %T store time   %B born time     (epoch milliseconds)
  %% percent, and \\n \\r \\t \\\\ \\0 \\xHH"""

_FORMAT_DEFAULT: Final = "%s\\n"
# Progress of a group is seen by the other members, and by the next run, within this time.
_PERSIST_INTERVAL_MS: Final = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", type=topic_name, required=True, help="the topic")
    add_cluster_options(parser)
    parser.add_argument(
        "-o",
        "--offset",
        type=_position,
        default=StartPosition(PositionKind.BEGINNING),
        metavar="WHERE",
        help=f"where to begin: {ACCEPTED}, TIME being epoch milliseconds or like "
        "2024-05-31T14:00:00 (default: earliest)",
    )
    parser.add_argument(
        "-c", "--count", type=count, metavar="N", help="end after N messages (default: never)"
    )
    parser.add_argument(
        "-e",
        "--exit-at-end",
        action="store_true",
        help="end at the position where the topic ended at the start",
    )
    parser.add_argument(
        "-G",
        "--group",
        help="read as a member of this group: members share the queues, brokers store the "
        "progress, and -o applies only where there is none",
    )
    parser.add_argument(
        "-q", "--queue", type=_queue_id, metavar="N", help="read the queues of this number only"
    )
    parser.add_argument(
        "--tags", default="*", metavar="EXPRESSION", help="only these tags: A, or 'A || B'"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "-f",
        "--format",
        type=_render,
        default=parse_format(_FORMAT_DEFAULT),
        help=f"how to print a message (default: {_FORMAT_DEFAULT.replace('%', '%%')})",
    )
    shape.add_argument(
        "-J",
        "--json",
        action="store_true",
        help="print each message as a JSON object in one line; bodyEncoding is utf-8 or base64",
    )


def run(options: argparse.Namespace) -> int:
    """Print until the end is reached, or until interrupted."""
    if options.group is not None:
        if options.queue is not None:
            raise CommandFailed("-q cannot be used with -G: a group shares all queues", MISUSED)
        if options.offset.kind in (PositionKind.OFFSET, PositionKind.FROM_END):
            raise CommandFailed("-o with -G must be earliest, latest or @TIME", MISUSED)
    return run_client(_consume(options))


async def _consume(options: argparse.Namespace) -> int:
    servers, security = given_cluster(options)
    outlet = MessageOutlet(
        sys.stdout.buffer, json_line if options.json else options.format, options.count
    )
    config = ClientConfig(servers, offset_persist_interval_ms=_PERSIST_INTERVAL_MS, **security)
    with cluster_errors(options.topic, servers):
        async with ClientInstance(config) as client:
            if options.group is not None:
                members = GroupReader(client, options.group, options.topic, options.tags, outlet)
                await members.read(options.offset, options.exit_at_end)
            else:
                reader = TopicReader(client, options.topic, options.tags, outlet)
                await reader.read(options.offset, options.exit_at_end, options.queue)
    outlet.flush()
    return DONE


def _position(text: str) -> StartPosition:
    try:
        return parse_position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _render(text: str) -> Render:
    try:
        return parse_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _queue_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not the number of a queue")
    return int(text)
