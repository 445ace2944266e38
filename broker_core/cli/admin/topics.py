"""`rmq admin topic …`: create, change, delete and show topics."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any, Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import EpochMs, Note, Report, Table
from broker_core.cli.admin.session import (
    AdminSession,
    add_broker_choice,
    chosen_brokers,
    topic_option,
)
from broker_core.cli.command_parser import count, key_and_value
from broker_core.client.admin.brokers import broker_stats
from broker_core.client.admin.groups import group_progress
from broker_core.client.admin.topics import (
    configs_of,
    topic_config,
    topic_groups,
    topic_masters,
    topic_status,
    topics_of_cluster,
)
from broker_core.codec.wire.topic_name import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode

_ASKED_AT_ONCE: Final = 16
_PERMISSIONS: Final = {"2": "write", "4": "read", "6": "both"}


# list


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--cluster", metavar="NAME", help="the topics of this cluster")
    parser.add_argument(
        "--all",
        action="store_true",
        help="include system topics, and retry and dead letter topics of groups",
    )
    parser.add_argument("--names", action="store_true", help="names only: asks no broker")


async def _list(session: AdminSession, options: argparse.Namespace) -> Report:
    if options.cluster:
        names = await topics_of_cluster(session.admin, options.cluster)
    else:
        names = list(await session.admin.topics())
    info = await session.admin.cluster_info()
    shown = sorted(name for name in names if options.all or not info.is_system_topic(name))
    if options.names:
        return [Table(("topic",), [(name,) for name in shown])]
    rows: list[tuple[Any, ...]] = []
    for first in range(0, len(shown), _ASKED_AT_ONCE):
        part = shown[first : first + _ASKED_AT_ONCE]
        rows += await asyncio.gather(*(_list_row(session, name) for name in part))
    hidden = len(names) - len(shown)
    note = [Note(f"{hidden} system topics are not shown (--all)")] if hidden else []
    return [Table(("topic", "brokers", "queues", "messages", "lastUpdated"), rows), *note]


async def _list_row(session: AdminSession, name: str) -> tuple[Any, ...]:
    """One topic; None for values that its brokers do not report."""
    try:
        spans = await topic_status(session.admin, name)
    except RmqError:
        return name, None, None, None, EpochMs(0)
    return (
        name,
        len({queue.broker_name for queue in spans}),
        len(spans),
        sum(span.end - span.low for span in spans.values()),
        EpochMs(max((span.newest_ms for span in spans.values()), default=0)),
    )


LIST: Final = AdminVerb(
    _list_arguments,
    _list,
    """\
  rmq admin topic list
  rmq admin topic list --names
  rmq admin topicList -c DefaultCluster --all""",
)


# create


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t",
        "--topic",
        required=True,
        action="append",
        dest="topics",
        help="the topic; may be repeated",
    )
    add_broker_choice(parser)
    parser.add_argument("-q", "--queues", type=count, metavar="N", help="queues (default: 8)")
    parser.add_argument(
        "-r",
        "--read-queues",
        type=_queue_count,
        metavar="N",
        help="queues to read, if their number differs",
    )
    parser.add_argument(
        "-w",
        "--write-queues",
        type=_queue_count,
        metavar="N",
        help="queues to write, if their number differs",
    )
    parser.add_argument(
        "-p", "--permission", choices=_PERMISSIONS, metavar="N", default="6",
        help="2 write, 4 read, 6 both (default: 6)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--order", nargs="?", const="true", default="false", choices=("true", "false"),
        metavar="FLAG", help="its messages are ordered: true or false",
    )  # fmt: skip
    parser.add_argument(
        "-a", "--attribute", type=key_and_value, action="append", default=[], dest="attributes",
        metavar="KEY=VALUE", help="an attribute of the topic; may be repeated",
    )  # fmt: skip


async def _create(session: AdminSession, options: argparse.Namespace) -> Report:
    names = None
    if options.broker:
        names = list(await chosen_brokers(session, options))
    queues = options.queues or 8
    await session.admin.create_topics(
        dict.fromkeys(options.topics, queues),
        read_queue_count=options.read_queues,
        write_queue_count=options.write_queues,
        perm=int(options.permission),
        cluster=options.cluster,
        broker_names=names,
        order=options.order == "true",
        attributes=dict(options.attributes),
    )
    return [*await _configs(session, options.topics)]


async def _configs(session: AdminSession, topics: Sequence[str]) -> list[Table]:
    configs = await configs_of(session.admin, topics)
    rows = [
        (topic, broker, found.read_queue_count, found.write_queue_count, found.perm, found.order,
         [f"{key}={value}" for key, value in found.attributes.items()])
        for topic in topics
        for broker, found in configs[topic].items()
    ]  # fmt: skip
    columns = (
        "topic", "broker", "readQueues", "writeQueues", "permission", "ordered", "attributes",
    )  # fmt: skip
    return [Table(columns, rows)]


CREATE: Final = AdminVerb(
    _create_arguments,
    _create,
    """\
  rmq admin topic create -t orders -q 8
  rmq admin topic create -t orders -t invoices -t totals
  rmq admin topic create -t orders -b broker-a -r 16 -w 16
  rmq admin updateTopic -c DefaultCluster -t orders -r 8 -w 8 -p 6""",
)


# show and permission


async def _show(session: AdminSession, options: argparse.Namespace) -> Report:
    return [*await _configs(session, [options.topic])]


SHOW: Final = AdminVerb(topic_option, _show, "  rmq admin topic show -t orders")


def _permission_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    add_broker_choice(parser)
    parser.add_argument(
        "-p", "--permission", choices=_PERMISSIONS, required=True, metavar="N",
        help="2 write, 4 read, 6 both",
    )  # fmt: skip


async def _permission(session: AdminSession, options: argparse.Namespace) -> Report:
    chosen = await chosen_brokers(session, options)
    for broker, found in (await topic_config(session.admin, options.topic)).items():
        if broker in chosen:
            await session.admin.create_topic(
                options.topic,
                read_queue_count=found.read_queue_count,
                write_queue_count=found.write_queue_count,
                perm=int(options.permission),
                broker_names=[broker],
                order=found.order,
            )
    return [*await _configs(session, [options.topic])]


PERMISSION: Final = AdminVerb(
    _permission_arguments,
    _permission,
    """\
  rmq admin topic permission -t orders -p 4        read only, on every broker
  rmq admin updateTopicPerm -t orders -p 6 -b broker-a""",
)


# delete


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser)
    parser.add_argument("-c", "--cluster", metavar="NAME", help="its cluster, if there are several")


async def _delete(session: AdminSession, options: argparse.Namespace) -> Report:
    await session.admin.delete_topic(options.topic, options.cluster)
    return [Note(f"topic {options.topic} is deleted")]


DELETE: Final = AdminVerb(
    _delete_arguments,
    _delete,
    """\
  rmq admin topic delete -t orders
  rmq admin topic delete -t orders --yes
  rmq admin deleteTopic -c DefaultCluster -t orders""",
    lambda options: f"delete topic {options.topic} and all its messages",
)


# status


async def _status(session: AdminSession, options: argparse.Namespace) -> Report:
    spans = await topic_status(session.admin, options.topic)
    rows = [
        (queue.broker_name, queue.queue_id, span.low, span.end, span.end - span.low,
         EpochMs(span.newest_ms))
        for queue, span in spans.items()
    ]  # fmt: skip
    columns = ("broker", "queue", "minOffset", "maxOffset", "messages", "lastUpdated")
    return [Table(columns, rows)]


STATUS: Final = AdminVerb(
    topic_option,
    _status,
    """\
  rmq admin topic status -t orders
  rmq admin topicStatus -t orders --json""",
)


# route, clusters, groups


async def _route(session: AdminSession, options: argparse.Namespace) -> Report:
    route = await session.admin.route(options.topic)
    queues = {queue.broker_name: queue for queue in route.queues}
    rows: list[tuple[Any, ...]] = []
    for broker in sorted(route.brokers, key=lambda found: found.broker_name):
        found = queues.get(broker.broker_name)
        counts: tuple[Any, ...] = (None, None, None)
        if found is not None:
            counts = (found.read_queue_count, found.write_queue_count, found.perm)
        for number, address in sorted(broker.addresses.items()):
            rows.append((broker.cluster, broker.broker_name, number, address, *counts))
    columns = ("cluster", "broker", "id", "address", "readQueues", "writeQueues", "permission")
    return [Table(columns, rows)]


ROUTE: Final = AdminVerb(topic_option, _route, "  rmq admin topic route -t orders")


async def _clusters(session: AdminSession, options: argparse.Namespace) -> Report:
    route = await session.admin.route(options.topic)
    names = sorted({broker.cluster for broker in route.brokers})
    return [Table(("cluster",), [(name,) for name in names])]


CLUSTERS: Final = AdminVerb(topic_option, _clusters, "  rmq admin topic clusters -t orders")


async def _groups(session: AdminSession, options: argparse.Namespace) -> Report:
    groups = await topic_groups(session.admin, options.topic)
    return [Table(("group",), [(group,) for group in groups])]


GROUPS: Final = AdminVerb(topic_option, _groups, "  rmq admin topic groups -t orders")


# stats


def _stats_arguments(parser: argparse.ArgumentParser) -> None:
    topic_option(parser, required=False)


async def _stats(session: AdminSession, options: argparse.Namespace) -> Report:
    if options.topic:
        names = [options.topic]
    else:
        names = [
            name for name in await session.admin.topics() if not name.startswith(DLQ_TOPIC_PREFIX)
        ]
    rows: list[tuple[Any, ...]] = []
    for name in names:
        try:
            rows += await _stats_rows(session, name)
        except RmqError as error:
            if options.topic:
                raise
            rows.append((name, f"({error})", None, None, None, None, None))
    columns = (
        "topic", "group", "behind", "inPerSecond", "outPerSecond", "in24Hours", "out24Hours",
    )  # fmt: skip
    return [Table(columns, rows)]


async def _stats_rows(session: AdminSession, topic: str) -> list[tuple[Any, ...]]:
    masters = await topic_masters(session.admin, topic)
    in_rate, in_day = await _sums(session, masters, "TOPIC_PUT_NUMS", topic)
    groups = await topic_groups(session.admin, topic)
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        if topic.startswith(RETRY_TOPIC_PREFIX) and topic != f"{RETRY_TOPIC_PREFIX}{group}":
            continue
        out_rate, out_day = await _sums(session, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        progress, _ = await group_progress(session.admin, group, topic)
        behind = sum(row.behind for row in progress.values())
        rows.append((topic, group, behind, in_rate, out_rate, in_day, out_day))
    return rows or [(topic, None, None, in_rate, None, in_day, None)]


async def _sums(
    session: AdminSession, masters: dict[str, str], name: str, key: str
) -> tuple[float, int]:
    rate, day = 0.0, 0
    for address in masters.values():
        try:
            found = await broker_stats(session.admin, address, name, key)
        except RemoteError as error:
            # Nothing was counted yet.
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            continue
        rate += float((found.get("statsMinute") or {}).get("tps") or 0)
        day += int((found.get("statsDay") or {}).get("sum") or 0)
    return rate, day


STATS: Final = AdminVerb(
    _stats_arguments,
    _stats,
    """\
  rmq admin topic stats
  rmq admin statsAll -t orders""",
)


def _queue_count(text: str) -> int:
    try:
        return count(text) if text != "0" else 0
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of queues") from None
