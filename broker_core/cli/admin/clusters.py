"""`rmq admin cluster …`: the brokers of a cluster and their figures."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import Report, Table
from broker_core.cli.admin.session import AdminSession
from broker_core.client.admin.brokers import runtime_info
from broker_core.errors import RmqError

_HOUR_MS: Final = 3_600_000


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--cluster", metavar="NAME", help="this cluster only")


async def _list(session: AdminSession, options: argparse.Namespace) -> Report:
    members = [
        member for member in await session.admin.members() if options.cluster in (None, member[0])
    ]
    infos = await asyncio.gather(*(_info(session, address) for *_, address in members))
    now_ms = session.clock.wall_ms()
    rows = [(*member, *_figures(info, now_ms)) for member, info in zip(members, infos, strict=True)]
    columns = ("cluster", "broker", "id", "address", "version", "inPerSecond", "outPerSecond",
               "oldestMessageHours", "diskUsed", "problem")  # fmt: skip
    return [Table(columns, rows)]


async def _info(session: AdminSession, address: str) -> dict[str, str]:
    try:
        return await runtime_info(session.admin, address)
    except RmqError as error:
        # An unreachable broker must not hide the others.
        return {"problem": str(error)}


def _figures(info: dict[str, str], now_ms: int) -> tuple[Any, ...]:
    oldest = _number(info.get("earliestMessageTimeStamp"))
    return (
        info.get("brokerVersionDesc"),
        _first_rate(info.get("putTps")),
        _first_rate(info.get("getTransferredTps") or info.get("getTransferedTps")),
        round((now_ms - oldest) / _HOUR_MS, 2) if oldest and oldest > 0 else None,
        _number(info.get("commitLogDiskRatio")),
        info.get("problem"),
    )


def _first_rate(text: str | None) -> float | None:
    return _number(text.split()[0]) if text and text.split() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


LIST: Final = AdminVerb(
    _list_arguments,
    _list,
    """\
  rmq admin cluster list
  rmq admin clusterList -c DefaultCluster --json""",
)
