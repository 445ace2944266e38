"""Checks topics with their numbers of queues, for `create_topics`, a new broker or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.codec.wire.topic_name import topic_name_problem
from broker_core.errors import InvalidArgument, explained

QUEUES_MAX: Final = 1 << 16
_QUEUES_SUGGESTED: Final = 4


def topic_counts(topics: Mapping[str, int] | None) -> dict[str, int]:
    """A copy of `topics`. Raises `InvalidArgument` unless it maps names to numbers of queues."""
    if topics is None:
        return {}
    if not isinstance(topics, Mapping):
        raise InvalidArgument(
            explained(
                f"topics={topics!r:.80} does not say how many queues each topic has: write"
                f" topics={_as_mapping(topics):.200}",
                "embedded-broker-topics",
            )
        )
    for name, count in topics.items():
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidArgument(f"topics: {name!r:.140}: {problem}")
        if type(count) is not int or not 1 <= count <= QUEUES_MAX:
            raise InvalidArgument(
                f"topics: {name!r:.80} cannot have {count!r:.40} queues: give 1 to {QUEUES_MAX}"
            )
    return dict(topics)


def _as_mapping(topics: object) -> str:
    """The argument as it was probably meant."""
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, list | tuple | set) or not all(isinstance(n, str) for n in names):
        names = ["orders"]
    return "{" + ", ".join(f'"{name}": {_QUEUES_SUGGESTED}' for name in names) + "}"
