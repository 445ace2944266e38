"""Topics created by sends and heartbeats, many with one write of the table.

A send to a topic that does not exist waits until the topic is on disk, and is stored then.
"""

from __future__ import annotations

import asyncio

from broker_core.broker.tables.table_changes import TableChanges
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.runtime.clock import Clock


class NewTopics:
    """Event loop only."""

    def __init__(self, topics: TopicTable, clock: Clock) -> None:
        self._topics = topics
        self.changes: TableChanges[TopicConfig] = TableChanges(topics, clock)
        """Shared with administration, so that all changes go into the same writes."""

    def make(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int = 0
    ) -> asyncio.Future[None] | None:
        """Create a topic from a template; the future is done when it is on disk.

        None when it exists or may not be created. A failed write fails the future, and no topic of
        that write exists then.
        """
        if self._topics.find(topic) is not None:
            return None
        coming = self.changes.coming(topic)
        if coming is not None:
            return coming
        made = self._topics.from_template(topic, default_topic, queue_count, sys_flag)
        return None if made is None else self.changes.make(made)

    def make_retry(
        self, group: str, queue_count: int, sys_flag: int = 0
    ) -> asyncio.Future[None] | None:
        """Create the retry topic of a group; None when it exists. The future is that of `make`."""
        made = self._topics.retry_topic(group, queue_count, sys_flag)
        if self._topics.find(made.name) is not None:
            return None
        return self.changes.coming(made.name) or self.changes.make(made)
