"""Prints a report periodically: in place on a terminal, otherwise one below the other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from broker_core.cli.admin.report import Report, print_report
from broker_core.cli.admin.session import AdminSession, add_session_options, admin_session
from broker_core.cli.client_session import run_client
from broker_core.cli.command_parser import count
from broker_core.cli.exit_codes import DONE, CommandFailed
from broker_core.errors import ConnectionLost
from broker_core.runtime.clock import sleep

_CLEAR: Final = "\x1b[H\x1b[J"

# Returns one report.
Look = Callable[[AdminSession, argparse.Namespace], Awaitable[Report]]


def add_screen_options(parser: argparse.ArgumentParser) -> None:
    """Options for the interval and the number of reports."""
    parser.add_argument(
        "-i",
        "--interval",
        type=count,
        default=2,
        metavar="SECONDS",
        help="time between two tables (default: 2)",
    )
    parser.add_argument(
        "--looks", type=count, metavar="N", help="end after N tables (default: never)"
    )
    add_session_options(parser)


def run_screen(options: argparse.Namespace, look: Look, looks: int | None) -> int:
    """Print `looks` reports, or until interrupted."""
    return run_client(_repeat(options, look, looks))


async def _repeat(options: argparse.Namespace, look: Look, looks: int | None) -> int:
    done = 0
    is_live = sys.stdout.isatty() and looks != 1 and not options.json
    async with admin_session(options) as session:
        while True:
            try:
                report = await look(session, options)
            except ConnectionLost as error:
                servers = ";".join(session.name_servers)
                text = f"{error}. Are the name servers {servers:.200} (-n) right, and up?"
                raise CommandFailed(text) from None
            between = "\n" if done and not options.json else ""
            sys.stdout.write(_CLEAR if is_live else between)
            print_report(report, options.json)
            sys.stdout.flush()
            done += 1
            if done == looks:
                return DONE
            await sleep(options.interval)
