"""`rmq top`: topics with their rates, sizes and the lag of their groups, live."""

from __future__ import annotations

import argparse
from typing import Any, Final

from broker_core.cli.admin.report import Note, Report, Table
from broker_core.cli.admin.session import AdminSession, chosen_brokers
from broker_core.cli.live.screen import add_screen_options, run_screen
from broker_core.client.admin.brokers import runtime_info
from broker_core.client.admin.groups import all_groups, group_progress
from broker_core.client.admin.topics import topic_status
from broker_core.errors import RmqError

EXAMPLES: Final = """\
  rmq top                  a new table every 2 seconds, until Ctrl-C
  rmq top --looks 2 -i 5   two tables, with rates over 5 seconds"""

TOPIC_COLUMNS: Final = ("topic", "queues", "messages", "inPerSecond", "behind", "groups")
BROKER_COLUMNS: Final = ("broker", "address", "inPerSecond", "outPerSecond", "diskUsed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include system topics")
    add_screen_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print until interrupted."""
    return run_screen(options, TopLooks(), options.looks)


class TopLooks:
    """Keeps the previous end offsets to compute rates."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._at = 0.0

    async def __call__(self, session: AdminSession, options: argparse.Namespace) -> Report:
        now = session.clock.monotonic()
        brokers = await chosen_brokers(session, options)
        behind = await _behind(session, brokers)
        info = await session.admin.cluster_info()
        ends: dict[str, int] = {}
        rows: list[tuple[Any, ...]] = []
        for name in sorted(await session.admin.topics()):
            if not options.all and info.is_system_topic(name):
                continue
            try:
                spans = await topic_status(session.admin, name)
            except RmqError:
                rows.append((name, None, None, None, None, None))
                continue
            ends[name] = sum(span.end for span in spans.values())
            groups = behind.get(name, {})
            rows.append(
                (
                    name,
                    len(spans),
                    sum(span.end - span.low for span in spans.values()),
                    self._rate(name, ends[name], now),
                    sum(groups.values()),
                    len(groups),
                )
            )
        self._ends, self._at = ends, now
        # The busiest first.
        rows.sort(key=lambda row: (-(row[3] or 0), -(row[4] or 0), row[0]))
        shown = [await _broker_row(session, *broker) for broker in brokers.items()]
        return [
            Table(BROKER_COLUMNS, shown, "brokers"),
            Table(TOPIC_COLUMNS, rows, "topics"),
            Note(
                "messages per second: topics since the last table, brokers over 10 s; Ctrl-C ends"
            ),
        ]

    def _rate(self, topic: str, end: int, now: float) -> float | None:
        if topic not in self._ends or now <= self._at:
            return None
        return max(0.0, (end - self._ends[topic]) / (now - self._at))


async def _behind(session: AdminSession, brokers: dict[str, str]) -> dict[str, dict[str, int]]:
    """Topic → group → lag in messages."""
    names: set[str] = set()
    for address in brokers.values():
        names.update(await all_groups(session.admin, address))
    found: dict[str, dict[str, int]] = {}
    for group in sorted(names):
        try:
            rows, _ = await group_progress(session.admin, group)
        except RmqError:
            continue
        for queue, row in rows.items():
            groups = found.setdefault(queue.topic, {})
            groups[group] = groups.get(group, 0) + row.behind
    return found


async def _broker_row(session: AdminSession, name: str, address: str) -> tuple[Any, ...]:
    try:
        info = await runtime_info(session.admin, address)
    except RmqError:
        return name, address, None, None, None
    return (
        name,
        address,
        _first_number(info.get("putTps", "")),
        _first_number(info.get("getTransferredTps", "")),
        _percent(info.get("commitLogDiskRatio", "")),
    )


def _first_number(text: str) -> float | None:
    """Brokers list averages over 10 s, 1 minute and 10 minutes."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _percent(text: str) -> str | None:
    number = _first_number(text)
    return None if number is None else f"{number * 100:.0f} %"
