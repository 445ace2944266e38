"""Queues of a position that no broker offers any more; their unread messages are data loss.

A topic that shrinks, or is deleted on one of several brokers, leaves the route at once. The master
is asked whether messages were unread. A broker of this project keeps the end of a deleted queue, so
it tells exactly how many were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker_core import ClientInstance, MessageQueue, ask_queue_remains, errors
from pyspark_rmq.source.retry import is_passing

_NAMED_MAX: Final = 5


class Remains(NamedTuple):
    """Answers of masters about queues that were not found."""

    offered: dict[MessageQueue, int]
    """Queues that can still be read -> their end."""
    gone: dict[MessageQueue, int]
    """Queues that cannot be read -> the offset that their next message would get."""
    silent: dict[str, errors.RmqError]
    """Brokers that did not answer, with the reason."""


async def ask_remains(
    client: ClientInstance, queues: Iterable[MessageQueue], missing: Iterable[str], group: str
) -> Remains:
    """Ask the masters; `missing` are topics that no name server knows.

    Answers of Apache brokers about those are not used: they do not distinguish a deleted topic from
    an empty one, and a restarted name server does not know topics yet.
    """
    asked: dict[tuple[str, str], list[MessageQueue]] = {}
    for queue in queues:
        asked.setdefault((queue.topic, queue.broker_name), []).append(queue)
    unsure = {*missing}
    found = Remains({}, {}, {})
    for (topic, broker), mine in asked.items():
        queue_ids = [queue.queue_id for queue in mine]
        try:
            remains = await ask_queue_remains(client, topic, broker, queue_ids, group)
        except errors.RmqError as error:
            if not is_passing(error):
                raise
            found.silent.setdefault(broker, error)
            continue
        if topic in unsure and not remains.names_its_log:
            text = f"no name server knows topic {topic} for now"
            found.silent.setdefault(
                broker, errors.TopicNotExist(errors.TopicNotExist.response_code, text)
            )
            continue
        for queue in mine:
            if queue.queue_id in remains.offered:
                found.offered[queue] = remains.offered[queue.queue_id]
            else:
                found.gone[queue] = remains.gone[queue.queue_id]
    return found


async def is_gone(client: ClientInstance, queue: MessageQueue, group: str) -> bool:
    """Whether a queue that could not be read no longer exists.

    The master decides; with an Apache broker the route must lack the queue, too.
    """
    try:
        is_shown = queue in await client.routes.subscribe_queues(queue.topic, refresh=True)
    except errors.TopicNotExist:
        is_shown = False
    except errors.RmqError:
        is_shown = True
    remains = await ask_remains(client, [queue], [queue.topic] if is_shown else [], group)
    return queue in remains.gone


def unread_of(
    gone: Mapping[MessageQueue, int], position: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int | None]:
    """Queues with unread messages and their number; None where the broker does not know it."""
    unread = {queue: end - position[queue] for queue, end in gone.items()}
    return {queue: count if count > 0 else None for queue, count in unread.items() if count}


def describe_unread(
    unread: Mapping[MessageQueue, int | None], position: Mapping[MessageQueue, int]
) -> str:
    """Text with the queues, their positions and the number of messages."""
    total = sum(count or 0 for count in unread.values())
    is_exact = None not in unread.values()
    shown = [
        f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} from offset"
        f" {position[queue]} on"
        for queue in sorted(unread)[:_NAMED_MAX]
    ]
    more = f" and {len(unread) - len(shown)} more" if len(unread) > len(shown) else ""
    count = f"{total} messages" if is_exact else f"{total or 'some'} messages or more"
    return (
        f"{count} were not read and cannot be read any more: {', '.join(shown)}{more}. The topic"
        " has fewer read queues there now, was deleted there, or is not readable"
    )
