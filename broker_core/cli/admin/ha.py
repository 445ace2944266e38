"""`rmq admin ha` and `rmq admin promote`: replication state, and promotion of a slave."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from broker_core.cli.admin.registry import AdminVerb
from broker_core.cli.admin.report import Facts, Note, Report, Table
from broker_core.cli.admin.session import AdminSession
from broker_core.client.admin.replication import (
    PROMOTION_TIMEOUT_MS,
    Member,
    promote,
    replication_members,
)
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import BrokerRole

_COLUMNS: Final = (
    "broker", "id", "address", "role", "epoch", "logEnd", "lagBytes", "lagMessages", "inSync",
    "problem",
)  # fmt: skip
_ROLES: Final = tuple(role.value for role in BrokerRole if role is not BrokerRole.SLAVE)


def _ha_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--broker", metavar="NAME", help="this broker name only")


async def _ha(session: AdminSession, options: argparse.Namespace) -> Report:
    names = sorted({name for _, name, _, _ in await session.admin.members()})
    if options.broker is not None:
        names = [options.broker]
    rows: list[tuple[Any, ...]] = []
    for name in names:
        members = await replication_members(session.admin, name)
        rows += _rows(name, members)
    return [Table(_COLUMNS, rows)]


def _rows(name: str, members: list[Member]) -> Iterator[tuple[Any, ...]]:
    """One row per member; the master knows how far its slaves are."""
    reports = {
        slave.get("broker_id"): slave
        for member in members
        for slave in member.status.get("slaves", ())
    }
    for member in members:
        status = member.status
        report = {} if member.is_master else reports.get(member.broker_id, {})
        yield (
            name,
            member.broker_id,
            member.address,
            status.get("role"),
            status.get("epoch"),
            status.get("log_end"),
            report.get("lag_bytes"),
            report.get("lag_messages"),
            report.get("in_sync"),
            member.problem or status.get("problem"),
        )


def _promote_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--broker",
        required=True,
        metavar="NAME[:ID]",
        help="the broker name, with the id of a slave if not the one with the longest log",
    )
    parser.add_argument(
        "--role",
        choices=_ROLES,
        default=BrokerRole.ASYNC_MASTER.value,
        metavar="ROLE",
        help=f"{' or '.join(_ROLES)} (default: {BrokerRole.ASYNC_MASTER.value})",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="promote even if the master answers, another slave has more, or one does not answer; "
        "acknowledged messages may be lost",
    )


async def _promote(session: AdminSession, options: argparse.Namespace) -> Report:
    name, broker_id = _named(options.broker)
    done = await promote(
        session.admin,
        name,
        broker_id,
        role=BrokerRole(options.role),
        force=options.force,
        timeout_ms=max(PROMOTION_TIMEOUT_MS, options.timeout),
    )
    facts = {
        "broker": done.broker_name,
        "master": done.address,
        "role": done.role,
        "epoch": done.epoch,
        "logEnd": done.log_end,
    }
    return [
        Facts(facts),
        Note(
            f"Set brokerRole={done.role} and brokerId=0 in the configuration of {done.address}: "
            "its next start reads that. The old master follows automatically when it returns."
        ),
    ]


def _named(text: str) -> tuple[str, int | None]:
    name, colon, number = text.partition(":")
    if not colon:
        return name, None
    if not number.isdecimal() or int(number) < 1:
        raise InvalidArgument(f"{text!r:.80} is not NAME or NAME:ID with the id of a slave")
    return name, int(number)


HA: Final = AdminVerb(
    _ha_arguments,
    _ha,
    """\
  rmq admin ha
  rmq admin ha --broker broker-a --json""",
)
PROMOTE: Final = AdminVerb(
    _promote_arguments,
    _promote,
    """\
  rmq admin promote --broker broker-a   the slave with the longest log
  rmq admin promote --broker broker-a:2 --role SYNC_MASTER""",
)
