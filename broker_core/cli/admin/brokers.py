"""`rmq admin broker …`: figures, settings, clean-ups and write permission of brokers."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from typing import Any, Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import EpochMs, Facts, Note, Report, Table
from broker_core.cli.admin.session import AdminSession, add_broker_choice, chosen_brokers
from broker_core.cli.setting_options import add_setting_options, given_settings
from broker_core.client.admin.brokers import (
    broker_backlog,
    broker_settings,
    broker_stats,
    change_settings,
    clean,
    runtime_info,
)
from broker_core.client.admin.groups import progress_rows
from broker_core.client.admin.names import add_write_permission, wipe_write_permission
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode

# status, config, set


async def _status(session: AdminSession, options: argparse.Namespace) -> Report:
    return [
        Facts(dict(sorted((await runtime_info(session.admin, address)).items())), name)
        for name, address in (await chosen_brokers(session, options)).items()
    ]


STATUS: Final = AdminVerb(
    add_broker_choice,
    _status,
    """\
  rmq admin broker status -b broker-a
  rmq admin brokerStatus -b 127.0.0.1:10911 --json""",
)


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_choice(parser)
    parser.add_argument("-k", "--key", metavar="KEY", help="this setting only")


async def _config(session: AdminSession, options: argparse.Namespace) -> Report:
    report = []
    for name, address in (await chosen_brokers(session, options)).items():
        settings = await broker_settings(session.admin, address)
        if options.key is not None:
            if options.key not in settings:
                raise InvalidArgument(f"broker {name} has no setting {options.key!r:.80}")
            settings = {options.key: settings[options.key]}
        report.append(Facts(dict(sorted(settings.items())), name))
    return report


CONFIG: Final = AdminVerb(
    _config_arguments,
    _config,
    """\
  rmq admin broker config -b broker-a
  rmq admin getBrokerConfig -b broker-a -k brokerPermission""",
)


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_choice(parser)
    add_setting_options(parser)


async def _set(session: AdminSession, options: argparse.Namespace) -> Report:
    settings = given_settings(options)
    chosen = await chosen_brokers(session, options)
    for address in chosen.values():
        await change_settings(session.admin, address, settings)
    rows = []
    for name, address in chosen.items():
        found = await broker_settings(session.admin, address)
        # Known only now: Apache's brokers do not list settings that have no value yet.
        for key in settings:
            if key not in found:
                raise InvalidArgument(_no_such_setting(name, key, found))
            rows.append((name, key, found[key]))
    return [Table(("broker", "setting", "value"), rows)]


def _no_such_setting(broker: str, key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ":"
    every = f"rmq admin broker config -b {broker} lists all"
    return f"broker {broker} has no setting {key!r:.80}{hint} {every}"


SET: Final = AdminVerb(
    _set_arguments,
    _set,
    """\
  rmq admin broker set -b broker-a brokerPermission=4
  rmq admin updateBrokerConfig -c DefaultCluster -k transactionCheckMax -v 5""",
)


# backlog, stats


def _backlog_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_choice(parser)
    parser.add_argument(
        "-l", "--level", type=int, default=0, metavar="N", help="only queues behind by N or more"
    )
    parser.add_argument("-o", "--order", action="store_true", help="ordered topics only")


async def _backlog(session: AdminSession, options: argparse.Namespace) -> Report:
    rows: list[tuple[Any, ...]] = []
    total = 0
    for name, address in (await chosen_brokers(session, options)).items():
        found = await broker_backlog(session.admin, address, options.order)
        total += int(found.get("totalDiff") or 0)
        for entry in found.get("consumeStatsList") or ():
            for group, by_topic in entry.items():
                for stats in by_topic:
                    rows += [
                        (group, queue.topic, name, queue.queue_id, row.end, row.consumed,
                         row.behind, EpochMs(row.last_ms))
                        for queue, row in sorted(progress_rows(stats).items())
                        if row.behind >= options.level
                    ]  # fmt: skip
    columns = ("group", "topic", "broker", "queue", "brokerOffset", "consumerOffset", "behind",
               "lastTime")  # fmt: skip
    return [Table(columns, rows), Note(f"behind in all: {total}")]


BACKLOG: Final = AdminVerb(
    _backlog_arguments,
    _backlog,
    """\
  rmq admin broker backlog -b broker-a
  rmq admin brokerConsumeStats -b broker-a -l 1000""",
)


def _stats_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_choice(parser)
    parser.add_argument(
        "--name", required=True,
        help="TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS, "
        "DLQ_PUT_NUMS, BROKER_PUT_NUMS or BROKER_GET_NUMS",
    )  # fmt: skip
    parser.add_argument(
        "--key", required=True, help="the topic, TOPIC@GROUP, or for BROKER_…: the cluster"
    )


async def _stats(session: AdminSession, options: argparse.Namespace) -> Report:
    rows = []
    for name, address in (await chosen_brokers(session, options)).items():
        found = await broker_stats(session.admin, address, options.name, options.key)
        for window in ("statsMinute", "statsHour", "statsDay"):
            values = found.get(window) or {}
            rows.append(
                (name, window[5:].lower(), values.get("sum"), values.get("tps"),
                 values.get("avgpt"))
            )  # fmt: skip
    return [Table(("broker", "window", "sum", "perSecond", "perCall"), rows)]


STATS: Final = AdminVerb(
    _stats_arguments,
    _stats,
    "  rmq admin broker stats -b broker-a --name TOPIC_PUT_NUMS --key orders",
)


# clean-ups


def _cleaner(code: int, done: str, example: str) -> AdminVerb:
    async def run(session: AdminSession, options: argparse.Namespace) -> Report:
        chosen = await chosen_brokers(session, options)
        for address in chosen.values():
            await clean(session.admin, address, code)
        return [Note(f"{done} on {', '.join(chosen) or 'no broker'}")]

    return AdminVerb(add_broker_choice, run, example)


CLEAN_QUEUES: Final = _cleaner(
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "expired queue files are removed",
    "  rmq admin broker clean-queues -b broker-a",
)
CLEAN_TOPICS: Final = _cleaner(
    RequestCode.CLEAN_UNUSED_TOPIC,
    "queues of topics that do not exist any more are removed",
    "  rmq admin broker clean-topics -c DefaultCluster",
)
CLEAN_LOG: Final = _cleaner(
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    "expired log files are removed",
    "  rmq admin broker clean-log -b broker-a",
)


# write permission


def _broker_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--broker", required=True, metavar="NAME", help="the broker's name")


async def _wipe(session: AdminSession, options: argparse.Namespace) -> Report:
    counts = await wipe_write_permission(session.admin, options.broker)
    return [Table(("nameServer", "topicsChanged"), list(counts.items()))]


async def _allow(session: AdminSession, options: argparse.Namespace) -> Report:
    counts = await add_write_permission(session.admin, options.broker)
    return [Table(("nameServer", "topicsChanged"), list(counts.items()))]


WIPE: Final = AdminVerb(
    _broker_argument,
    _wipe,
    """\
  rmq admin broker drain -b broker-a   producers go elsewhere, consumers finish
  rmq admin wipeWritePerm -b broker-a""",
)
ALLOW: Final = AdminVerb(_broker_argument, _allow, "  rmq admin broker undrain -b broker-a")
