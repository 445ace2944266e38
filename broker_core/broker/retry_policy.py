"""When a message that could not be consumed is tried again, and when it becomes a dead letter.

Pure. Retries use the delay levels: the n-th one waits at level 3 + n, so that 16 of them go from
10 seconds to 2 hours with RocketMQ's levels.
"""

from __future__ import annotations

from typing import Final

from broker_core.codec.group_config import RETRY_TIMES_MAX_DEFAULT

FIRST_RETRY_LEVEL: Final = 3


def times_max(of_group: int, asked: int | None) -> int:
    """How often a message is tried again: the consumer's wish, else the group's setting.

    Below 0 means "not set" to clients and tools.
    """
    for limit in (asked, of_group):
        if limit is not None and limit >= 0:
            return limit
    return RETRY_TIMES_MAX_DEFAULT


def retry_level(reconsume_times: int, limit: int, asked_level: int) -> int | None:
    """Delay level of the next try of a message that was given back; None makes it a dead letter.

    `reconsume_times` is how often it had been tried again before. `asked_level` below 0 asks for
    the dead letters, 0 leaves it to us.
    """
    if asked_level < 0 or reconsume_times >= limit:
        return None
    return asked_level if asked_level > 0 else FIRST_RETRY_LEVEL + reconsume_times


def resend_is_dead(reconsume_times: int, limit: int, *, is_ordered: bool) -> bool:
    """Whether a message that a consumer itself sends to its retry topic becomes a dead letter.

    Its `reconsume_times` counts the try to come, therefore "above" and not "from". A consumer that
    holds queue locks keeps the order by trying in place: what it sends, it has given up.
    """
    return is_ordered or reconsume_times > limit
