"""`rmq admin group …` and `producer …`: consumer groups, their progress, who is connected."""

from __future__ import annotations

import argparse
from typing import Any, Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import EpochMs, Facts, Note, Report, Table
from broker_core.cli.admin.session import (
    AdminSession,
    add_broker_choice,
    chosen_brokers,
    group_option,
    topic_option,
)
from broker_core.cli.command_parser import count
from broker_core.client.admin.groups import (
    Connected,
    Progress,
    all_groups,
    all_producers,
    consumer_connections,
    group_masters,
    group_progress,
    producer_connections,
    running_info,
)
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map
from broker_core.errors import ConsumerNotOnline, GroupNotExist
from broker_core.protocol_codes import ResponseCode

_CONFIG_COLUMNS: Final = (
    "group", "broker", "consumes", "broadcasts", "fromMin", "retryQueues", "retryMax", "readsFrom",
)  # fmt: skip


# list, show, create, delete


async def _list(session: AdminSession, options: argparse.Namespace) -> Report:
    names: set[str] = set()
    for address in (await chosen_brokers(session, options)).values():
        names.update(await all_groups(session.admin, address))
    rows = []
    for name in sorted(names):
        try:
            live = await consumer_connections(session.admin, name)
            rows.append((name, len(live.connections), live.consume_type, live.message_model))
        except ConsumerNotOnline:
            rows.append((name, 0, "", ""))
    return [Table(("group", "members", "type", "model"), rows)]


LIST: Final = AdminVerb(
    add_broker_choice,
    _list,
    """\
  rmq admin group list
  rmq admin groups -b broker-a --json""",
)


async def _show(session: AdminSession, options: argparse.Namespace) -> Report:
    return [await _configs(session, options.group)]


async def _configs(session: AdminSession, group: str) -> Table:
    rows = []
    for name, address in (await chosen_brokers(session, argparse.Namespace())).items():
        found = (await all_groups(session.admin, address)).get(group)
        if found is not None:
            rows.append(
                (group, name, found.consume_enable, found.consume_broadcast_enable,
                 found.consume_from_min_enable, found.retry_queue_count, found.retry_times_max,
                 found.broker_id)
            )  # fmt: skip
    if not rows:
        raise GroupNotExist(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker knows group {group}"
        )
    return Table(_CONFIG_COLUMNS, rows)


SHOW: Final = AdminVerb(group_option, _show, "  rmq admin group show -g billing")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    add_broker_choice(parser)
    for letter, name, text in (
        ("-s", "consume", "it may consume"),
        ("-m", "from-min", "it may start at the beginning"),
        ("-d", "broadcast", "it may broadcast"),
    ):
        parser.add_argument(
            letter, f"--{name}", choices=("true", "false"), default="true", metavar="FLAG",
            help=f"{text}: true or false (default: true)",
        )  # fmt: skip
    parser.add_argument(
        "-q", "--retry-queues", type=count, default=1, metavar="N",
        help="queues of its retry topic (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "-r", "--retry-max", type=count, default=16, metavar="N",
        help="maximum retries of a message (default: 16)",
    )  # fmt: skip


async def _create(session: AdminSession, options: argparse.Namespace) -> Report:
    group = GroupConfig(
        options.group,
        consume_enable=options.consume == "true",
        consume_from_min_enable=options.from_min == "true",
        consume_broadcast_enable=options.broadcast == "true",
        retry_queue_count=options.retry_queues,
        retry_times_max=options.retry_max,
    )
    names = list(await chosen_brokers(session, options))
    await session.admin.create_group(group, broker_names=names)
    return [await _configs(session, options.group)]


CREATE: Final = AdminVerb(
    _create_arguments,
    _create,
    """\
  rmq admin group create -g billing
  rmq admin group create -g billing --consume false     no member may consume
  rmq admin updateSubGroup -c DefaultCluster -g billing -r 3""",
)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    parser.add_argument("-c", "--cluster", metavar="NAME", help="its cluster, if there are several")
    parser.add_argument(
        "--keep-offsets",
        action="store_true",
        help="keep the offsets: a new group of that name continues from them",
    )


async def _delete(session: AdminSession, options: argparse.Namespace) -> Report:
    await session.admin.delete_group(
        options.group, clean_offsets=not options.keep_offsets, cluster=options.cluster
    )
    return [Note(f"group {options.group} is deleted")]


DELETE: Final = AdminVerb(
    _delete_arguments,
    _delete,
    """\
  rmq admin group delete -g billing
  rmq admin deleteSubGroup -c DefaultCluster -g billing""",
    lambda options: (
        f"delete group {options.group}" + ("" if options.keep_offsets else " and its progress")
    ),
)


# progress


def _progress_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser, required=False)
    topic_option(parser, required=False)


async def _progress(session: AdminSession, options: argparse.Namespace) -> Report:
    if options.group:
        rows, rate = await group_progress(session.admin, options.group, options.topic or "")
        total = sum(row.behind for row in rows.values())
        return [_queue_table(rows), Note(f"behind: {total}, messages per second: {rate:.2f}")]
    names: set[str] = set()
    for address in (await chosen_brokers(session, options)).values():
        names.update(await all_groups(session.admin, address))
    return [Table(("group", "members", "behind", "outPerSecond"),
                  [await _group_row(session, name) for name in sorted(names)])]  # fmt: skip


def _queue_table(rows: dict[MessageQueue, Progress]) -> Table:
    columns = (
        "topic", "broker", "queue", "brokerOffset", "consumerOffset", "behind", "lastTime",
    )  # fmt: skip
    return Table(
        columns,
        [
            (queue.topic, queue.broker_name, queue.queue_id, row.end, row.consumed, row.behind,
             EpochMs(row.last_ms))
            for queue, row in rows.items()
        ],
    )  # fmt: skip


async def _group_row(session: AdminSession, group: str) -> tuple[Any, ...]:
    rows, rate = await group_progress(session.admin, group)
    try:
        members = len((await consumer_connections(session.admin, group)).connections)
    except ConsumerNotOnline:
        members = 0
    return group, members, sum(row.behind for row in rows.values()), rate


PROGRESS: Final = AdminVerb(
    _progress_arguments,
    _progress,
    """\
  rmq admin group progress                     every group in one line
  rmq admin group progress -g billing          every queue of one
  rmq admin consumerProgress -g billing -t orders --json""",
)


# connections, running


async def _connections(session: AdminSession, options: argparse.Namespace) -> Report:
    live = await consumer_connections(session.admin, options.group)
    return [
        _connected(live.connections)._replace(title="members"),
        Table(("topic", "expression"), list(live.subscriptions.items()), "subscriptions"),
        Facts(
            {
                "type": live.consume_type,
                "model": live.message_model,
                "startsFrom": live.consume_from,
            },
            "group",
        ),
    ]


def _connected(connections: tuple[Connected, ...]) -> Table:
    columns = ("clientId", "address", "language", "version")
    return Table(columns, [(c.client_id, c.address, c.language, c.version) for c in connections])


CONNECTIONS: Final = AdminVerb(
    group_option,
    _connections,
    """\
  rmq admin group connections -g billing
  rmq admin consumerConnection -g billing --json""",
)


def _running_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser)
    parser.add_argument("-i", "--client", metavar="ID", help="this member only")
    parser.add_argument(
        "-s", "--stacks", action="store_true", help="with the stack traces of its threads"
    )


async def _running(session: AdminSession, options: argparse.Namespace) -> Report:
    live = await consumer_connections(session.admin, options.group)
    report: list[Table | Facts | Note] = []
    for member in live.connections:
        if options.client in (None, member.client_id):
            report += await _member(session, options, member.client_id)
    if not report:
        text = f"group {options.group} has no member {options.client}"
        raise ConsumerNotOnline(ResponseCode.CONSUMER_NOT_ONLINE, text)
    return report


async def _member(
    session: AdminSession, options: argparse.Namespace, client_id: str
) -> list[Table | Facts | Note]:
    info = await running_info(session.admin, options.group, client_id, options.stacks)
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, row.get("commitOffset"),
         row.get("cachedMsgCount"), EpochMs(row.get("lastPullTimestamp") or 0),
         EpochMs(row.get("lastConsumeTimestamp") or 0))
        for queue, row in sorted(parse_queue_map(info.get("mqTable")).items())
    ]  # fmt: skip
    columns = ("topic", "broker", "queue", "offset", "waiting", "lastPull", "lastConsumed")
    rates = [
        (topic, row.get("pullTPS"), row.get("consumeOKTPS"), row.get("consumeFailedTPS"),
         row.get("consumeRT"))
        for topic, row in sorted((info.get("statusTable") or {}).items())
    ]  # fmt: skip
    report: list[Table | Facts | Note] = [
        Facts(info.get("properties") or {}, f"member {client_id}"),
        Table(columns, rows, f"queues of {client_id}"),
        Table(
            ("topic", "pulledPerSecond", "consumedPerSecond", "failedPerSecond", "milliseconds"),
            rates,
            f"rates of {client_id}",
        ),
    ]
    if options.stacks and info.get("jstack"):
        report.append(Facts({"threads": info["jstack"]}, f"threads of {client_id}"))
    return report


RUNNING: Final = AdminVerb(
    _running_arguments,
    _running,
    """\
  rmq admin group running -g billing
  rmq admin consumerStatus -g billing -i 10.0.0.9@4711 -s""",
)


# producers


def _producer_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--group", required=True, help="the producer group")
    topic_option(parser)


async def _producers(session: AdminSession, options: argparse.Namespace) -> Report:
    return [_connected(await producer_connections(session.admin, options.group, options.topic))]


PRODUCER_CONNECTIONS: Final = AdminVerb(
    _producer_arguments, _producers, "  rmq admin producer connections -g shop -t orders"
)


async def _all_producers(session: AdminSession, options: argparse.Namespace) -> Report:
    rows = []
    for name, address in (await chosen_brokers(session, options)).items():
        for group, found in await all_producers(session.admin, address):
            rows.append(
                (name, group, found.client_id, found.address, found.language, found.version)
            )
    columns = ("broker", "group", "clientId", "address", "language", "version")
    return [Table(columns, rows)]


PRODUCERS: Final = AdminVerb(
    add_broker_choice, _all_producers, "  rmq admin producer list -b broker-a"
)


async def _where(session: AdminSession, options: argparse.Namespace) -> Report:
    masters = await group_masters(session.admin, options.group)
    return [Table(("broker", "address"), list(masters.items()))]


BROKERS: Final = AdminVerb(group_option, _where, "  rmq admin group brokers -g billing")
