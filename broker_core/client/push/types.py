"""Arguments and results of listeners, and the settings of a push consumer."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.wire.bodies.heartbeat_data import (
    BROADCASTING,
    CLUSTERING,
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.queue_allocation import Allocation, allocate_average
from broker_core.errors import InvalidConfig

LEVEL_BY_BROKER: Final = 0
LEVEL_DEAD_LETTER: Final = -1
RECONSUME_TIMES_DEFAULT: Final = 16


class ConsumeStatus(enum.Enum):
    """The result of a listener."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    """Failed. A concurrent consumer gets copies of the messages after a delay; an orderly one gets
    the same messages again before any that follow."""


@dataclasses.dataclass
class ConsumeContext:
    """Context of one listener call; the listener may change the fields."""

    queue: MessageQueue
    delay_level: int = LEVEL_BY_BROKER
    """Redelivery delay: 0 lets the broker choose (10 s, 30 s, 1 min, …), -1 moves the messages to
    the dead-letter queue, 1 to 18 is a delay level of the broker."""
    suspend_ms: int = 1_000
    """Delay of an orderly consumer before it retries the same messages."""
    succeeded: int | None = None
    """With LATER and several messages: how many of the first ones succeeded."""


# May be a coroutine function. Returning None is success; raising is LATER.
Listener = Callable[[Sequence[ReceivedMessage], ConsumeContext], Any]


@dataclasses.dataclass(frozen=True)
class PushSettings:
    """How a push consumer behaves; the defaults are RocketMQ's."""

    model: str = CLUSTERING
    orderly: bool = False
    from_where: str = FROM_LAST_OFFSET
    """Where a group without progress starts."""
    from_timestamp_ms: int = 0
    allocation: Allocation = allocate_average
    batch_size: int = 1
    """Maximum messages per listener call."""
    concurrency: int = 20
    """Maximum concurrent listener calls; the number of threads for a plain function."""
    max_reconsume_times: int = -1
    """Negative: 16 for a concurrent consumer, no limit for an orderly one."""
    pull_count: int = 32
    pull_size: int = 256 << 10
    suspend_ms: int = 15_000
    backlog_count_max: int = 1_000
    backlog_size_max: int = 100 << 20
    backlog_span_max: int = 2_000
    rebalance_interval_ms: int = 20_000
    lock_interval_ms: int = 20_000
    lock_validity_ms: int = 30_000
    stop_wait_ms: int = 10_000
    """How long `stop` waits for listener calls under way."""
    offsets_directory: str | None = None
    """Where a broadcasting consumer saves its progress; without it nothing is saved."""

    def __post_init__(self) -> None:
        _check_choice("model", self.model, (CLUSTERING, BROADCASTING))
        starts = (FROM_LAST_OFFSET, FROM_FIRST_OFFSET, FROM_TIMESTAMP)
        _check_choice("from_where", self.from_where, starts)
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidConfig(name, value, "give a whole number of at least 1")
        if self.offsets_directory is not None and self.model != BROADCASTING:
            accepted = "brokers keep the progress of a clustering consumer; leave it out"
            raise InvalidConfig("offsets_directory", self.offsets_directory, accepted)

    @property
    def is_clustering(self) -> bool:
        """Whether members share the queues."""
        return self.model == CLUSTERING

    @property
    def needs_locks(self) -> bool:
        """Whether a queue is consumed only while this client holds its lock."""
        return self.orderly and self.is_clustering

    @property
    def reconsume_times_max(self) -> int | None:
        """Maximum redeliveries; None for no limit."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return None if self.orderly else RECONSUME_TIMES_DEFAULT


_AT_LEAST_ONE: Final = (
    "batch_size",
    "concurrency",
    "pull_count",
    "pull_size",
    "suspend_ms",
    "backlog_count_max",
    "backlog_size_max",
    "backlog_span_max",
    "rebalance_interval_ms",
    "lock_interval_ms",
    "lock_validity_ms",
    "stop_wait_ms",
)


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidConfig(name, value, f"one of {', '.join(choices)}")
