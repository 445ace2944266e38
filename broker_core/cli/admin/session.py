"""The connection of one `rmq admin` command: the options that all have, and a started client."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from broker_core.cli.cluster_options import add_cluster_options, given_cluster
from broker_core.cli.command_parser import count
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.errors import InvalidArgument
from broker_core.runtime.clock import Clock

_TIMEOUT_MS_DEFAULT: Final = 5_000


class AdminSession(NamedTuple):
    """The started client, the clock and the name servers of one command."""

    admin: Admin
    clock: Clock
    name_servers: tuple[str, ...]


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Options that every command of `rmq admin` has."""
    group = add_cluster_options(parser, "cluster and output")
    group.add_argument("--json", action="store_true", help="print one JSON document")
    group.add_argument(
        "--timeout",
        type=count,
        default=_TIMEOUT_MS_DEFAULT,
        metavar="MS",
        help=f"how long to wait for each answer (default: {_TIMEOUT_MS_DEFAULT})",
    )


async def broker_address(session: AdminSession, given: str) -> str:
    """The address of a broker that was named or given as HOST:PORT; it must be in the cluster."""
    members = await session.admin.members()
    for _, name, number, address in members:
        if given == address or (given == name and number == 0):
            return address
    known = ", ".join(f"{name} ({address})" for _, name, _, address in members)
    raise InvalidArgument(f"no broker {given!r:.100}; the name servers list {known or 'none'}")


async def chosen_brokers(session: AdminSession, options: argparse.Namespace) -> dict[str, str]:
    """Name → address of the brokers given by `-b` or `-c`, else of every master."""
    if getattr(options, "broker", None):
        address = await broker_address(session, options.broker)
        names = [name for _, name, _, found in await session.admin.members() if found == address]
        return {names[0]: address}
    cluster = getattr(options, "cluster", None)
    return {
        name: address
        for found, name, number, address in await session.admin.members()
        if number == 0 and cluster in (None, found)
    }


def add_broker_choice(parser: argparse.ArgumentParser) -> None:
    """Options that select brokers."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-b", "--broker", metavar="BROKER", help="this one, by name or HOST:PORT")
    group.add_argument("-c", "--cluster", metavar="NAME", help="the masters of this cluster")


def topic_option(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`-t`."""
    parser.add_argument("-t", "--topic", required=required, help="the topic")


def group_option(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`-g`."""
    parser.add_argument("-g", "--group", required=required, help="the consumer group")


@contextlib.asynccontextmanager
async def admin_session(options: argparse.Namespace) -> AsyncIterator[AdminSession]:
    """A started client, stopped at the end."""
    servers, security = given_cluster(options)
    config = ClientConfig(servers, request_timeout_ms=options.timeout, **security)
    async with Admin(config) as admin:
        yield AdminSession(admin, admin.client.clock, servers)
