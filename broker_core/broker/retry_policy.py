"""When a message that was not consumed is retried, and when it becomes a dead letter.

Pure. Retries use the delay levels: the n-th one waits at level 3 + n, so that 16 of them go from
10 seconds to 2 hours with RocketMQ's levels.
"""

from __future__ import annotations

from broker_core.codec.wire.bodies.group_config import RETRY_TIMES_MAX_DEFAULT
from broker_core.protocol_codes import FIRST_RETRY_LEVEL


def times_max(of_group: int, asked: int | None) -> int:
    """Maximum number of retries: the consumer's value, else the group's setting.

    Below 0 means "not set" to clients and tools.
    """
    for limit in (asked, of_group):
        if limit is not None and limit >= 0:
            return limit
    return RETRY_TIMES_MAX_DEFAULT


def retry_level(reconsume_times: int, limit: int, asked_level: int) -> int | None:
    """Delay level of the next retry of a message that was sent back; None for a dead letter.

    `reconsume_times` counts earlier retries. `asked_level` below 0 asks for a dead letter; 0 uses
    the default.
    """
    if asked_level < 0 or reconsume_times >= limit:
        return None
    return asked_level if asked_level > 0 else FIRST_RETRY_LEVEL + reconsume_times


def resend_is_dead(reconsume_times: int, limit: int, *, is_ordered: bool) -> bool:
    """Whether a message that a consumer itself sends to its retry topic becomes a dead letter.

    Its `reconsume_times` includes the next try, hence `>` and not `>=`. An orderly consumer retries
    in place: a message that it sends to the retry topic has used up its retries.
    """
    return is_ordered or reconsume_times > limit
