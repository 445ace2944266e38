"""Topics of the servers: one row for each name, with everything that depends on it.

Pure. Topics that carry the name of a cluster or a broker are not here: `is_system_topic` of
`ClusterInfo` and of the broker's topic table know those names.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Flag, auto
from typing import Final, NamedTuple

from broker_core.codec.wire.topic_name import (
    APPEND_GROUP_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_TOPIC_PREFIX,
    OFFSET_MOVED_TOPIC,
    PROXY_HEARTBEAT_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)


class TopicRule(Flag):
    """What a row says of its topic."""

    OWNED = auto()
    """A broker of this project keeps it: clients do not create, change or delete it, and an account
    needs a rule with its name. Metrics count it as a system topic."""
    HIDDEN = auto()
    """Lists of topics leave it out, and a pattern of Spark's source does not match it."""
    NO_SENDS = auto()
    """Only the broker writes to it: a forged record would be delivered or committed."""
    NO_PULLS = auto()
    """Only the broker reads it: messages that are not delivered yet, and records of its own."""


OWNED, HIDDEN, NO_SENDS, NO_PULLS = TopicRule

SYSTEM_TOPICS: Final = {
    TEMPLATE_TOPIC: OWNED | HIDDEN,
    BENCHMARK_TOPIC: OWNED | HIDDEN,
    TRACE_TOPIC: OWNED | HIDDEN,
    OFFSET_MOVED_TOPIC: OWNED | HIDDEN | NO_SENDS,
    SELF_TEST_TOPIC: OWNED | HIDDEN | NO_SENDS,
    # Operators read it to find out what was given up.
    TRANSACTION_GIVEN_UP_TOPIC: OWNED | HIDDEN | NO_SENDS,
    SCHEDULE_TOPIC: OWNED | HIDDEN | NO_SENDS | NO_PULLS,
    TIMER_TOPIC: OWNED | HIDDEN | NO_SENDS | NO_PULLS,
    TRANSACTION_HALF_TOPIC: OWNED | HIDDEN | NO_SENDS | NO_PULLS,
    TRANSACTION_OP_TOPIC: OWNED | HIDDEN | NO_SENDS | NO_PULLS,
    APPEND_GROUP_TOPIC: OWNED | HIDDEN | NO_SENDS | NO_PULLS,
    # Of Apache's proxy, which this project does not have.
    PROXY_HEARTBEAT_TOPIC: HIDDEN,
}
"""Name -> its rules."""

SYSTEM_TOPIC_STARTS: Final = {
    SYSTEM_TOPIC_PREFIX: OWNED | HIDDEN,
    # Of Apache's brokers, such as RMQ_SYS_ROCKSDB_OFFSET_TOPIC. Ours has those above.
    "RMQ_SYS_": HIDDEN,
    SYSTEM_GROUP_PREFIX: HIDDEN,
    # They belong to a consumer group, and so do their permissions.
    RETRY_TOPIC_PREFIX: HIDDEN,
    DLQ_TOPIC_PREFIX: HIDDEN,
}
"""Start of names -> their rules."""


class _Names(NamedTuple):
    names: frozenset[str]
    starts: tuple[str, ...]

    def hold(self, name: str) -> bool:
        return name in self.names or name.startswith(self.starts)


def _with(rule: TopicRule) -> _Names:
    return _Names(
        frozenset(name for name, rules in SYSTEM_TOPICS.items() if rule in rules),
        tuple(start for start, rules in SYSTEM_TOPIC_STARTS.items() if rule in rules),
    )


_OWNED, _HIDDEN, _NO_SENDS, _NO_PULLS = (_with(rule) for rule in TopicRule)


def is_owned(name: str) -> bool:
    """Whether every broker of this project keeps the topic for itself."""
    return _OWNED.hold(name)


def is_hidden(name: str, clusters: Collection[str], brokers: Collection[str]) -> bool:
    """Whether lists and patterns leave the topic out, in a cluster with these names."""
    if _HIDDEN.hold(name) or name in clusters or name in brokers:
        return True
    cluster = name.removesuffix(REPLY_TOPIC_SUFFIX)
    return cluster != name and cluster in clusters


def refuses_sends(name: str) -> bool:
    """Whether only the broker itself may write to the topic."""
    return _NO_SENDS.hold(name)


def refuses_pulls(name: str) -> bool:
    """Whether only the broker itself may read the topic."""
    return _NO_PULLS.hold(name)
