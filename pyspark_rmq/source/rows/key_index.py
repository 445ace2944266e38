"""`key = …`: reads only the messages that a broker's index names.

An index may be disabled or hold more than one answer can, and an empty answer looks like no match.
So it is used only for a topic on one broker, if the answer is not full and the index finds messages
that are known to exist: the last one and the first one, because an index that was enabled late has
only new messages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from broker_core import Admin, ClientInstance, PullConsumer, ReceivedMessage, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.rows.predicates import Predicate, only_texts

_log = logging.getLogger(__name__)

_ASKED_MAX: Final = 32
_KEYS_MAX: Final = 16


async def by_index(
    client: ClientInstance,
    options: SourceOptions,
    ranges: Sequence[QueueRange],
    predicates: Sequence[Predicate],
) -> list[QueueRange]:
    """Ranges of the messages with the listed keys, or `ranges` if the index cannot be used."""
    keys = only_texts(predicates, "key")
    if keys is None or len(keys) > _KEYS_MAX:
        return list(ranges)
    left: list[QueueRange] = []
    for topic in sorted({part.topic for part in ranges}):
        mine = [part for part in ranges if part.topic == topic]
        try:
            found = await _places(Admin(client), options, mine, keys)
        except errors.RmqError as error:
            _log.info("the index of %s is not used: %s", topic, error)
            found = None
        left += mine if found is None else found
    return left


async def _places(
    admin: Admin, options: SourceOptions, ranges: Sequence[QueueRange], keys: Sequence[str]
) -> list[QueueRange] | None:
    """None if the index is not reliable."""
    topic = ranges[0].topic
    brokers = {queue.broker_name for queue in await admin.queues(topic)}
    if len(brokers) != 1 or not await _is_reliable(admin, options, ranges):
        return None
    [broker] = brokers
    offsets: dict[int, set[int]] = {}
    for key in keys:
        # The index has each key of a message separately; the column has all of them.
        word = key.split(" ")[0]
        if not word:
            return None
        found, is_complete = await admin.query_index(broker, topic, word, max_count=_ASKED_MAX)
        if not is_complete:
            return None
        for record in found:
            offsets.setdefault(record.queue_id, set()).add(record.queue_offset)
    return [
        part._replace(start=offset, until=offset + 1)
        for part in ranges
        for offset in sorted(offsets.get(part.queue_id, ()))
        if part.start <= offset < part.until
    ]


async def _is_reliable(admin: Admin, options: SourceOptions, ranges: Sequence[QueueRange]) -> bool:
    """Whether the index has the first and the last message of the longest range."""
    longest = max(ranges, key=lambda part: part.rows)
    consumer = PullConsumer(admin.client, options.reader_group)
    for offset in (longest.until - 1, longest.start):
        result = await consumer.pull(longest.queue, offset, max_count=1)
        if not result.messages or not await _knows(admin, longest, result.messages[0]):
            return False
    return True


async def _knows(admin: Admin, part: QueueRange, message: ReceivedMessage) -> bool:
    # The unique id is in the index like a key.
    key = message.properties.get("UNIQ_KEY") or message.keys.split(" ")[0]
    if not key:
        return False
    found, _ = await admin.query_index(part.broker_name, part.topic, key, max_count=_ASKED_MAX)
    place = (part.queue_id, message.queue_offset)
    return any((record.queue_id, record.queue_offset) == place for record in found)
