"""Pull commands: Apache's PULL_MESSAGE and our broker's BULK_PULL."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import (
    PULL_COMMIT_OFFSET,
    PULL_HAS_SUBSCRIPTION,
    PULL_MAY_SUSPEND,
    RequestCode,
)

# Answer timeout, in addition to the time that the broker may hold the request.
ANSWER_TIMEOUT_MS: Final = 10_000
HELD_ANSWER_TIMEOUT_MS: Final = 15_000


class PullRequest(NamedTuple):
    """One pull from a queue."""

    offset: int
    count_max: int = 32
    size_max: int = 0
    """Bytes; 0 leaves it to the broker. Apache 4.9 ignores it."""
    suspend_ms: int = 0
    """How long the broker may hold the request until a message arrives."""
    commit_offset: int = -1
    """Offset to commit with the pull, at a master; negative for none."""
    verify: bool = True
    """Whether the broker verifies the records; only BULK_PULL can leave it to the caller."""

    @property
    def timeout_ms(self) -> int:
        """Timeout of the answer."""
        if self.suspend_ms > 0:
            return self.suspend_ms + HELD_ANSWER_TIMEOUT_MS
        return ANSWER_TIMEOUT_MS


def pull_command(
    request: PullRequest,
    queue: MessageQueue,
    group: str,
    subscription: SubscriptionData,
    *,
    to_master: bool,
) -> RemotingCommand:
    """PULL_MESSAGE. It carries the subscription, so no heartbeat is needed before it."""
    sys_flag = PULL_HAS_SUBSCRIPTION
    commits = to_master and request.commit_offset >= 0
    if commits:
        sys_flag |= PULL_COMMIT_OFFSET
    if request.suspend_ms > 0:
        sys_flag |= PULL_MAY_SUSPEND
    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(request.offset),
        "maxMsgNums": str(request.count_max),
        "sysFlag": str(sys_flag),
        "commitOffset": str(request.commit_offset if commits else 0),
        "suspendTimeoutMillis": str(request.suspend_ms),
        "subscription": subscription.sub_string or "*",
        "subVersion": str(subscription.version),
        "expressionType": subscription.expression_type,
    }
    if request.size_max > 0:
        ext["maxMsgBytes"] = str(request.size_max)
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext)


def bulk_pull_command(
    request: PullRequest, queue: MessageQueue, group: str, size_max: int
) -> RemotingCommand:
    """BULK_PULL: every message of a range, as many as fit into one answer."""
    ext = {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "offset": str(request.offset),
        "maxBytes": str(size_max),
        "maxCount": str(request.count_max),
        "consumerGroup": group,
    }
    if request.suspend_ms > 0:
        ext["suspendTimeoutMillis"] = str(request.suspend_ms)
    if not request.verify:
        ext["verify"] = "false"
    return RemotingCommand(RequestCode.BULK_PULL, ext)
