"""Data loss: messages that a query can no longer read. Fails or warns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from broker_core import MessageQueue, errors

_log = logging.getLogger(__name__)

REMEDY: Final = (
    "To go on without what is lost, set failOnDataLoss=false; to keep messages longer, raise"
    " fileReservedTime on the broker; to start over, use a new checkpoint directory"
)
_NAMED_MAX: Final = 5

NEW_STORE_REMEDY: Final = (
    "To start over, use a new checkpoint directory (checkpointLocation) or delete this one; to keep"
    " it and read the new store from its first message, set failOnDataLoss=false; to keep the"
    " messages of an embedded broker from run to run, give it a directory: EmbeddedBroker(store=…)"
)


class DataLost(errors.RmqError):
    """Messages are lost, and failOnDataLoss is on."""


def report_loss(text: str, *, fails: bool, remedy: str = REMEDY, anchor: str = "data-loss") -> None:
    """Raise `DataLost`, or log a warning."""
    if fails:
        raise DataLost(errors.explained(f"{text}. {remedy}", anchor))
    _log.warning("%s; going on, because failOnDataLoss is off", text)


def describe_lost(
    same: Mapping[MessageQueue, int],
    position: Mapping[MessageQueue, int],
    *,
    is_repeated: bool = False,
) -> str:
    """Text about messages that were read and are not in the log any more, with their number.

    `same` has the offset up to which each queue of the log is the one that was read.
    `is_repeated`: the last batch was repeated in between, and has read what came instead.
    """
    lost = {
        queue: position[queue] - at
        for queue, at in sorted(same.items())
        if at < position.get(queue, 0)
    }
    if not lost:
        return (
            "All messages that this query has read are still there; how many are lost that it had"
            " not read yet is not known, because the position does not have their offsets"
        )
    shown = [
        f"{count} of queue {queue.queue_id} of {queue.topic} from offset {same[queue]} on"
        for queue, count in lost.items()
    ]
    more = f" and {len(shown) - _NAMED_MAX} more queues" if len(shown) > _NAMED_MAX else ""
    return (
        f"{sum(lost.values())} messages that were read are not in the log any more:"
        f" {', '.join(shown[:_NAMED_MAX])}{more}. Their offsets belong to other messages now, or"
        " will; "
    ) + (
        "the last batch was run again and has read some of those, so reading goes on after it"
        if is_repeated
        else "reading goes on with those"
    )


def describe_deleted(
    begins: Mapping[MessageQueue, int], position: Mapping[MessageQueue, int]
) -> str:
    """Text about messages that were deleted before they were read, with their number.

    `begins` has the first offset that each queue still has.
    """
    shown = [
        f"offsets {position[queue]} to {begin} of queue {queue.queue_id} of {queue.topic} on"
        f" {queue.broker_name}"
        for queue, begin in sorted(begins.items())
    ]
    more = f" and {len(shown) - _NAMED_MAX} more queues" if len(shown) > _NAMED_MAX else ""
    total = sum(begin - position[queue] for queue, begin in begins.items())
    return (
        f"{total} messages were deleted before they were read: {', '.join(shown[:_NAMED_MAX])}"
        f"{more}"
    )


def describe_unknown_loss(run: str) -> str:
    """Text for a log that has none of the runs that the position names."""
    return (
        "How many messages are lost is not known: the broker does not tell where its log begins to"
        f" differ, because it has none of the runs that the position names (the last one is {run}),"
        " is of an earlier version, or has more than 4,096 queues of the topic. Reading goes on at"
        " the position, or at the end of a queue that ends before it; other messages that have"
        " offsets below it now are not read"
    )
