"""`rmq lag`: the lag of consumer groups, once or periodically."""

from __future__ import annotations

import argparse
from typing import Any, Final

from broker_core.cli.admin.report import Note, Report, Table
from broker_core.cli.admin.session import (
    AdminSession,
    chosen_brokers,
    group_option,
    topic_option,
)
from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.live.screen import add_screen_options, run_screen
from broker_core.client.admin.groups import all_groups, group_progress
from broker_core.client.admin.topics import topic_groups
from broker_core.errors import GroupNotExist, TopicNotExist, explained

EXAMPLES: Final = """\
  rmq lag                                      every group and topic
  rmq lag -g billing --watch                   a new table every 2 seconds
  rmq lag --watch -i 10 --json"""

COLUMNS: Final = ("group", "topic", "queues", "behind", "perSecond")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group_option(parser, required=False)
    topic_option(parser, required=False)
    parser.add_argument("-w", "--watch", action="store_true", help="repeat until Ctrl-C")
    add_screen_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the lag."""
    return run_screen(options, LagLooks(), options.looks if options.watch else 1)


class LagLooks:
    """Lag by group and topic. Keeps the previous values to compute its change per second."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], int] = {}
        self._at = 0.0

    async def __call__(self, session: AdminSession, options: argparse.Namespace) -> Report:
        now = session.clock.monotonic()
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for group in await self._groups(session, options):
            try:
                rows, _ = await group_progress(session.admin, group, options.topic or "")
            except GroupNotExist as error:
                if not options.group or options.watch:
                    continue
                text = f"{error}: rmq admin group list shows those that are"
                raise CommandFailed(text) from None
            except TopicNotExist:
                if not options.topic or options.watch:
                    continue
                raise _unknown(options.topic) from None
            for queue, row in rows.items():
                queues, behind = found.get((group, queue.topic), (0, 0))
                found[group, queue.topic] = queues + 1, behind + row.behind
        table = Table(
            COLUMNS,
            [
                (*key, queues, behind, self._change(key, behind, now))
                for key, (queues, behind) in sorted(found.items())
            ],
        )
        self._before = {key: behind for key, (_, behind) in found.items()}
        self._at = now
        total = sum(behind for _, behind in found.values())
        return [table, Note(f"behind: {total}")]

    async def _groups(self, session: AdminSession, options: argparse.Namespace) -> list[str]:
        if options.group:
            return [options.group]
        if options.topic:
            try:
                return await topic_groups(session.admin, options.topic)
            except TopicNotExist:
                if options.watch:
                    return []
                raise _unknown(options.topic) from None
        names: set[str] = set()
        for address in (await chosen_brokers(session, options)).values():
            names.update(await all_groups(session.admin, address))
        return sorted(names)

    def _change(self, key: tuple[str, str], behind: int, now: float) -> Any:
        """Growth of the lag per second, negative when it shrinks; None in the first report."""
        before = self._before.get(key)
        if before is None or now <= self._at:
            return None
        return (behind - before) / (now - self._at)


def _unknown(topic: str) -> CommandFailed:
    text = f"topic {topic!r:.140} is not known: rmq admin topic list shows those that are"
    return CommandFailed(explained(text, "topic-not-found"))
