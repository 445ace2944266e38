"""The connection of one `rmq admin` command: the options that all have, and a started client."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from broker_core.cli.command_parser import (
    NAME_SERVER_DEFAULT,
    NAME_SERVER_VARIABLE,
    address_list,
    count,
    name_servers,
)
from broker_core.client.admin import Admin
from broker_core.client.client_config import ClientConfig
from broker_core.runtime.clock import Clock

_TIMEOUT_MS_DEFAULT: Final = 5_000


class AdminSession(NamedTuple):
    """What a command works with."""

    admin: Admin
    clock: Clock
    name_servers: tuple[str, ...]


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """What every command of `rmq admin` takes."""
    group = parser.add_argument_group("cluster and output")
    group.add_argument(
        "-n",
        "--namesrv",
        type=address_list,
        metavar="ADDRESSES",
        help="name servers as HOST:PORT, several separated by ; (default: the variable "
        f"{NAME_SERVER_VARIABLE}, else {NAME_SERVER_DEFAULT})",
    )
    group.add_argument("--json", action="store_true", help="print one JSON document")
    group.add_argument(
        "--timeout",
        type=count,
        default=_TIMEOUT_MS_DEFAULT,
        metavar="MS",
        help=f"how long to wait for each answer (default: {_TIMEOUT_MS_DEFAULT})",
    )


@contextlib.asynccontextmanager
async def admin_session(options: argparse.Namespace) -> AsyncIterator[AdminSession]:
    """A started client, stopped at the end."""
    servers = name_servers(options.namesrv)
    config = ClientConfig(servers, request_timeout_ms=options.timeout)
    async with Admin(config) as admin:
        yield AdminSession(admin, admin.client.clock, servers)
