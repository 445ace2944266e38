"""Topics of which a broker keeps the last message for each key only: their queues have holes.

Elsewhere a hole inside a queue is a log that lost something, so it is never taken for granted: the
broker that has the queue must say that the topic is compacted.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core import Admin, MessageQueue, admin_topics, errors
from pyspark_rmq.connections import Connected

_log = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"


def is_compacted(connected: Connected, queue: MessageQueue) -> bool:
    """Whether the broker of the queue says so; asked only when there is a hole."""
    try:
        found = connected.call(admin_topics.topic_config(Admin(connected.client), queue.topic))
    except errors.RmqError as error:
        _log.warning("no settings of topic %s: %s", queue.topic, error)
        return False
    config = found.get(queue.broker_name)
    return config is not None and config.attributes.get(_POLICY) == _COMPACTION
