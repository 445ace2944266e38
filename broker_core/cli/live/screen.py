"""Prints a report periodically: in place on a terminal, otherwise one below the other."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from broker_core.cli.admin.report import Facts, Note, Report, Table, print_report
from broker_core.cli.admin.session import AdminSession, add_session_options, admin_session
from broker_core.cli.client_session import connection_failure, run_client
from broker_core.cli.command_parser import count
from broker_core.cli.exit_codes import DONE, CommandFailed
from broker_core.errors import ConnectionLost, RmqError
from broker_core.runtime.clock import sleep

_CLEAR: Final = "\x1b[H\x1b[J"
_HEIGHT_DEFAULT: Final = 24

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
    report: Report = ()
    async with admin_session(options) as session:
        while True:
            try:
                report = await look(session, options)
                shown = report
            except RmqError as error:
                if not (done and is_live):
                    if isinstance(error, ConnectionLost):
                        raise CommandFailed(connection_failure(error)) from None
                    raise
                # A cluster that is started again is seen again.
                shown = [*report, Note(f"the last look, because {error}; looking again")]
            between = "\n" if done and not options.json else ""
            sys.stdout.write(_CLEAR if is_live else between)
            if is_live:
                shown = fitted(shown, _terminal_height() - 1)
            print_report(shown, options.json)
            sys.stdout.flush()
            done += 1
            if done == looks:
                return DONE
            await sleep(options.interval)


def _terminal_height() -> int:
    # Some terminals say 0.
    return os.get_terminal_size(sys.stdout.fileno()).lines or _HEIGHT_DEFAULT


def fitted(report: Report, height: int) -> Report:
    """The report in `height` lines, if leaving out rows of its longest table can do that."""
    excess = sum(map(_lines, report)) + len(report) - 1 - height
    longest = max(map(_rows, report), default=0)
    if excess <= 0 or longest < 2:
        return report
    place = next(place for place, part in enumerate(report) if _rows(part) == longest)
    table = report[place]
    assert isinstance(table, Table)
    # The note takes a line, and one above it.
    kept = max(1, longest - excess - 2)
    note = Note(f"{longest - kept} more do not fit the terminal")
    return [
        *report[:place],
        table._replace(rows=table.rows[:kept]),
        note,
        *report[place + 1 :],
    ]


def _lines(part: Table | Facts | Note) -> int:
    if isinstance(part, Note):
        return 1
    body = len(part.values) if isinstance(part, Facts) else 1 + len(part.rows)
    return body + bool(part.title)


def _rows(part: Table | Facts | Note) -> int:
    return len(part.rows) if isinstance(part, Table) else 0
