"""Compacted topics: the broker keeps only the last message of each key, so queues have holes.

In any other topic a hole is data loss. So a hole is accepted only if the broker of the queue says
that the topic is compacted.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core import Admin, ClientInstance, MessageQueue, admin_topics, errors
from pyspark_rmq.connections import Connected

_log = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"


def is_compacted(connected: Connected, queue: MessageQueue) -> bool:
    """Whether the broker of the queue says so. Asked only when a hole was found."""
    found: bool = connected.call(says_compacted(connected.client, queue))
    return found


async def says_compacted(client: ClientInstance, queue: MessageQueue) -> bool:
    """`is_compacted`, on the event loop of the client."""
    try:
        found = await admin_topics.topic_config(Admin(client), queue.topic)
    except errors.RmqError as error:
        _log.warning("no settings of topic %s: %s", queue.topic, error)
        return False
    config = found.get(queue.broker_name)
    return config is not None and config.attributes.get(_POLICY) == _COMPACTION
