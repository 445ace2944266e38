"""`key = …`: the few messages that a broker's index names, instead of everything.

An index may be switched off, or hold more than a broker tells in one answer, and an empty answer
looks like no match. So it is used only for a topic on one broker, when the answer is not full, and
when it finds messages of which we know that they are there: an old one, too, because an index that
was switched on late has the newest only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from broker_core import Admin, ClientInstance, PullConsumer, ReceivedMessage, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offset_planning import QueueRange
from pyspark_rmq.source.predicates import Predicate, only_texts

_log = logging.getLogger(__name__)

_ASKED_MAX: Final = 32
_KEYS_MAX: Final = 16


async def by_index(
    client: ClientInstance,
    options: SourceOptions,
    ranges: Sequence[QueueRange],
    predicates: Sequence[Predicate],
) -> list[QueueRange]:
    """The offsets of the messages with the keys that conditions list, or the ranges as they are."""
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
    """None when the index cannot be relied on."""
    topic = ranges[0].topic
    brokers = {queue.broker_name for queue in await admin.queues(topic)}
    if len(brokers) != 1 or not await _is_reliable(admin, options, ranges):
        return None
    [broker] = brokers
    offsets: dict[int, set[int]] = {}
    for key in keys:
        # A message is in the index under each of its keys; the column has all of them.
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
    # Its id is in the index like its keys, and no other message has it.
    key = message.properties.get("UNIQ_KEY") or message.keys.split(" ")[0]
    if not key:
        return False
    found, _ = await admin.query_index(part.broker_name, part.topic, key, max_count=_ASKED_MAX)
    place = (part.queue_id, message.queue_offset)
    return any((record.queue_id, record.queue_offset) == place for record in found)
