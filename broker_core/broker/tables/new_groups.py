"""Groups created by heartbeats, with their retry topics, and by reads: many with one write.

The first heartbeat or read of a group is answered when the group is on disk.
"""

from __future__ import annotations

import asyncio

from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.table_changes import TableChanges
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import UNIT_SUBSCRIPTION_FLAG
from broker_core.runtime.clock import Clock


class NewGroups:
    """Event loop only."""

    def __init__(self, groups: GroupTable, topics: NewTopics, clock: Clock) -> None:
        self._groups = groups
        self._topics = topics
        self.changes: TableChanges[GroupConfig] = TableChanges(groups, clock)
        """Shared with administration, so that all changes go into the same writes."""

    def make(self, name: str, *, unit_mode: bool = False) -> list[asyncio.Future[None]]:
        """Create a group and its retry topic; the futures are done when they are on disk.

        No futures when both exist, or the group may not be created. A failed write fails its
        future, and nothing of that write exists then.
        """
        group = self._groups.find(name) or self._groups.from_defaults(name)
        if group is None:
            return []
        making = self.make_group(name)
        makings = [] if making is None else [making]
        if group.retry_queue_count > 0:
            flags = UNIT_SUBSCRIPTION_FLAG if unit_mode else 0
            retry = self._topics.make_retry(name, group.retry_queue_count, flags)
            makings += [] if retry is None else [retry]
        return makings

    def make_group(self, name: str) -> asyncio.Future[None] | None:
        """Create a group without its retry topic; None when it exists or may not be created."""
        if self._groups.find(name) is not None:
            return None
        group = self._groups.from_defaults(name)
        return None if group is None else self.changes.coming(name) or self.changes.make(group)
