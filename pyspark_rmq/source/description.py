"""`describe`: tables about a cluster. No Spark.

topics   each topic on each broker            lag   progress of groups, per queue
queues   offsets of each queue                dlq   dead-letter queues of groups
groups   consumer groups and their members
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core import Admin, ClientInstance, admin_groups, admin_topics, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.topic_discovery import TopicDiscovery

_DLQ: Final = "%DLQ%"
_QUEUE: Final = "topic STRING, broker STRING, partition INT"
_SPAN: Final = "minOffset BIGINT, maxOffset BIGINT, messages BIGINT, newest TIMESTAMP"

Row = tuple[Any, ...]


class Description(NamedTuple):
    """One kind of table."""

    schema: str
    rows: Callable[[Admin, SourceOptions], Awaitable[list[Row]]]


def description_schema(kind: str) -> str:
    """The DDL text of a table."""
    return DESCRIPTIONS[kind].schema


def described_columns(kind: str, names: Iterable[str]) -> list[int]:
    """Positions of the columns of a user's schema; raises `InvalidArgument`."""
    known = [text.split()[0] for text in description_schema(kind).split(",")]
    by_name = {name.lower(): place for place, name in enumerate(known)}
    places = []
    for name in names:
        if name.lower() not in by_name:
            raise errors.InvalidArgument(
                f"describe={kind} has no column {name!r:.80}. There are: {', '.join(known)}"
            )
        places.append(by_name[name.lower()])
    return places


async def describe(client: ClientInstance, options: SourceOptions) -> list[Row]:
    """The rows of the table that the options name, as of now."""
    return await DESCRIPTIONS[options.describe].rows(Admin(client), options)


async def _topics(admin: Admin, options: SourceOptions) -> list[Row]:
    rows = []
    for topic in await _wanted_topics(admin, options):
        spans = await admin_topics.topic_status(admin, topic)
        for broker, config in (await admin_topics.topic_config(admin, topic)).items():
            mine = [span for queue, span in spans.items() if queue.broker_name == broker]
            messages = sum(span.end - span.low for span in mine)
            newest = max((span.newest_ms for span in mine), default=0)
            rows.append(
                (
                    topic,
                    broker,
                    config.read_queue_count,
                    config.write_queue_count,
                    _permission(config.perm),
                    messages,
                    _time(newest),
                )
            )
    return rows


async def _queues(admin: Admin, options: SourceOptions) -> list[Row]:
    return await _queue_rows(admin, await _wanted_topics(admin, options))


async def _queue_rows(admin: Admin, topics: Iterable[str]) -> list[Row]:
    return [
        (*queue, span.low, span.end, span.end - span.low, _time(span.newest_ms))
        for topic in topics
        for queue, span in (await admin_topics.topic_status(admin, topic)).items()
    ]


async def _groups(admin: Admin, options: SourceOptions) -> list[Row]:
    rows = []
    for name, configs in (await _wanted_groups(admin, options)).items():
        try:
            members = len((await admin_groups.consumer_connections(admin, name)).connections)
        except (errors.ConsumerNotOnline, errors.GroupNotExist):
            members = 0
        for broker, config in configs.items():
            rows.append((name, broker, members, config.consume_enable, config.retry_times_max))
    return rows


async def _lag(admin: Admin, options: SourceOptions) -> list[Row]:
    topics = set(await _wanted_topics(admin, options)) if _names_topics(options) else None
    rows = []
    for group in await _wanted_groups(admin, options):
        for queue, progress in (await _progress(admin, group, topics)).items():
            if topics is None or queue.topic in topics:
                rows.append(
                    (group, *queue, progress.consumed, progress.end, progress.behind,
                     _time(progress.last_ms))
                )  # fmt: skip
    return rows


async def _progress(admin: Admin, group: str, topics: set[str] | None) -> Mapping[Any, Any]:
    found: dict[Any, Any] = {}
    for topic in sorted(topics) if topics is not None else [""]:
        try:
            found.update((await admin_groups.group_progress(admin, group, topic))[0])
        except (errors.TopicNotExist, errors.GroupNotExist, errors.ConsumerNotOnline):
            continue
    return found


async def _dlq(admin: Admin, options: SourceOptions) -> list[Row]:
    listed = [topic for topic in await admin.topics() if topic.startswith(_DLQ)]
    groups = [topic.removeprefix(_DLQ) for topic in listed]
    wanted = [g for g in groups if not options.group or g == options.group]
    rows = await _queue_rows(admin, [f"{_DLQ}{group}" for group in wanted])
    return [(str(row[0]).removeprefix(_DLQ), *row) for row in rows]


def _names_topics(options: SourceOptions) -> bool:
    return bool(options.topics or options.topic_pattern or options.assigned)


async def _wanted_topics(admin: Admin, options: SourceOptions) -> list[str]:
    discovery = TopicDiscovery(admin.client, options)
    return await discovery.topics(default_pattern=".*")


async def _wanted_groups(admin: Admin, options: SourceOptions) -> dict[str, dict[str, Any]]:
    """Group -> broker -> its configuration there."""
    found: dict[str, dict[str, Any]] = {}
    for broker, address in (await admin.masters()).items():
        groups = admin_groups.all_groups if options.group else admin_groups.user_groups
        for name, config in (await groups(admin, address)).items():
            if name == options.group or not options.group:
                found.setdefault(name, {})[broker] = config
    if options.group and not found:
        raise errors.InvalidArgument(f"no broker knows group {options.group}")
    return dict(sorted(found.items()))


def _permission(perm: int) -> str:
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}"


def _time(ms: int) -> datetime.datetime | None:
    if ms <= 0:
        return None
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)


DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "topics": Description(
        "topic STRING, broker STRING, readQueues INT, writeQueues INT, perm STRING,"
        " messages BIGINT, newest TIMESTAMP",
        _topics,
    ),
    "queues": Description(f"{_QUEUE}, {_SPAN}", _queues),
    "groups": Description(
        "group STRING, broker STRING, members INT, consumeEnabled BOOLEAN, maxRetries INT",
        _groups,
    ),
    "lag": Description(
        f"group STRING, {_QUEUE}, committedOffset BIGINT, maxOffset BIGINT, lag BIGINT,"
        " lastConsumed TIMESTAMP",
        _lag,
    ),
    "dlq": Description(f"group STRING, {_QUEUE}, {_SPAN}", _dlq),
}
