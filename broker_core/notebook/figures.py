"""Figures of a cluster, asked of its brokers: ours and Apache's answer the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.brokers import broker_stats, runtime_info
from broker_core.client.admin.groups import Progress, all_groups, group_masters, group_progress
from broker_core.client.admin.topics import (
    QueueSpan,
    topic_groups,
    topic_masters,
    topic_status,
)
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.pull.stream import READER_GROUP
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.topic_name import is_system_group
from broker_core.errors import RemoteError

# Read at once from one queue for `tail`.
_ASKED_AT_ONCE: Final = 16
_PULL_MAX: Final = 32


class TopicFigures(NamedTuple):
    """One topic: its queues and the messages per second that it got in the last minute."""

    topic: str
    queues: Mapping[MessageQueue, QueueSpan]
    rate: float

    @property
    def messages(self) -> int:
        """Messages that can be read."""
        return sum(span.end - span.low for span in self.queues.values())

    @property
    def newest_ms(self) -> int:
        return max((span.newest_ms for span in self.queues.values()), default=0)


class BrokerFigures(NamedTuple):
    """One master."""

    name: str
    address: str
    version: str
    log_size: int
    """Bytes of the log."""
    disk_share: float
    """Used part of the disk."""
    facts: Mapping[str, str]
    """Everything that it reports."""


class GroupLag(NamedTuple):
    """Progress of one group in one queue."""

    group: str
    queue: MessageQueue
    progress: Progress


async def user_topics(admin: Admin, *, system: bool = False) -> list[str]:
    """Names of the topics; system topics only if asked for."""
    names = await admin.topics()
    if system:
        return list(names)
    info = await admin.cluster_info()
    return [name for name in names if not info.is_system_topic(name)]


async def topic_figures(admin: Admin, topic: str) -> TopicFigures:
    """Raises `TopicNotExist`."""
    rate = 0.0
    for address in (await topic_masters(admin, topic)).values():
        try:
            found = await broker_stats(admin, address, "TOPIC_PUT_NUMS", topic)
        except RemoteError:
            # Nothing was counted.
            continue
        minute = found.get("statsMinute")
        tps = minute.get("tps", 0.0) if isinstance(minute, Mapping) else 0.0
        rate += tps if isinstance(tps, int | float) else 0.0
    return TopicFigures(topic, await topic_status(admin, topic), rate)


async def all_topic_figures(admin: Admin, *, system: bool = False) -> list[TopicFigures]:
    """Every topic, in the order of their names."""
    return await figures_of(admin, await user_topics(admin, system=system))


async def figures_of(admin: Admin, topics: Sequence[str]) -> list[TopicFigures]:
    """Of the topics that there are."""
    found: list[TopicFigures | None] = []
    for first in range(0, len(topics), _ASKED_AT_ONCE):
        part = topics[first : first + _ASKED_AT_ONCE]
        found += await asyncio.gather(*(_figures_or_none(admin, topic) for topic in part))
    return [each for each in found if each is not None]


async def _figures_or_none(admin: Admin, topic: str) -> TopicFigures | None:
    try:
        return await topic_figures(admin, topic)
    except RemoteError:
        # Deleted meanwhile, or its broker is away.
        return None


async def broker_figures(admin: Admin) -> list[BrokerFigures]:
    """Every master that answers."""
    found = []
    for name, address in sorted((await admin.masters()).items()):
        facts = await runtime_info(admin, address)
        low, high = (_whole(facts.get(f"commitLog{end}Offset")) for end in ("Min", "Max"))
        found.append(
            BrokerFigures(
                name,
                address,
                facts.get("brokerVersionDesc", ""),
                max(0, high - max(low, 0)),
                _share(facts.get("commitLogDiskRatio")),
                facts,
            )
        )
    return found


async def group_lags(admin: Admin, group: str = "", topic: str = "") -> list[GroupLag]:
    """Progress of every group, or of one, in every queue of the topics that it has read."""
    rows = []
    for name in await _group_names(admin, group, topic):
        try:
            found, _ = await group_progress(admin, name, topic)
        except RemoteError:
            if group:
                raise
            continue
        rows += [
            GroupLag(name, queue, progress)
            for queue, progress in found.items()
            if not queue.topic.startswith("%RETRY%") or progress.behind
        ]
    return rows


def _is_system_group(name: str) -> bool:
    """Also the name under which `PullConsumer` and Spark's tasks read without a group."""
    return name == READER_GROUP or is_system_group(name)


async def _group_names(admin: Admin, group: str, topic: str) -> list[str]:
    """The given group, else those that have read the topic, else all."""
    if group:
        # A broker reports progress in a given topic also for a group that does not exist.
        await group_masters(admin, group)
        return [group]
    names: set[str] = set()
    if topic:
        names.update(await topic_groups(admin, topic))
    else:
        for address in (await admin.masters()).values():
            names.update(await all_groups(admin, address))
    return sorted(name for name in names if not _is_system_group(name))


async def last_messages(consumer: PullConsumer, topic: str, count: int) -> list[ReceivedMessage]:
    """The newest messages of a topic over all its queues, oldest first."""
    queues = await consumer.queues(topic)
    ends = await asyncio.gather(*(_span(consumer, queue) for queue in queues))
    found: list[ReceivedMessage] = []
    for queue, (low, end) in zip(queues, ends, strict=True):
        offset = max(low, end - count)
        while offset < end:
            result = await consumer.pull(queue, offset, max_count=_PULL_MAX)
            found += [message for message in result.messages if message.queue_offset < end]
            if result.next_offset <= offset:
                break
            offset = result.next_offset
    found.sort(key=lambda m: (m.store_timestamp, m.queue.broker_name, m.physical_offset))
    return found[-count:] if count else []


async def _span(consumer: PullConsumer, queue: MessageQueue) -> tuple[int, int]:
    return await consumer.min_offset(queue), await consumer.max_offset(queue)


def _whole(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _share(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
