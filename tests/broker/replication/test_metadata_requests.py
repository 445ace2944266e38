"""Requests of slaves for the master's tables."""

from __future__ import annotations

import os
from collections.abc import Callable

from broker_core.broker.replication import metadata_requests as processor
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from tests.broker.replication.test_metadata_copy import Copied, scenario

__all__ = ["scenario"]

TOPICS = 45_000 if os.environ.get("RMQ_CRASH_LONG") else 5_000


def _topics(count: int, size: int = 0) -> list[TopicConfig]:
    return [TopicConfig(f"topic-{number:06d}".ljust(size, "x"), 4, 4) for number in range(count)]


def test_many_topics(scenario: Callable[..., None]) -> None:
    """In the long run more than one frame may have (16 MB)."""

    async def test(pair: Copied) -> None:
        master, slave = pair.master.broker.context, pair.slave.broker.context
        table = {topic.name: topic for topic in (*master.topics.all(), *_topics(TOPICS, 127))}
        master.topics.replace(table.values(), master.topics.version._replace(counter=9))
        size = len(emit_json(processor.topic_table_object(master.topics.all())))
        assert size > 350 * TOPICS
        assert await pair.metadata.copy_once()
        assert slave.topics.version == master.topics.version
        assert {topic.name for topic in slave.topics.all()} >= set(table)

    scenario(test)
