"""Which group owns the messages of a retry topic, by its name and their properties.

`%RETRY%a_x` holds messages that group `a_x` sent back, and messages that group `a` popped from
topic `x` and did not acknowledge: names may contain the separator. Where a name is ambiguous, the
properties of each message name its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.records.message_properties import split_properties
from broker_core.codec.wire.pop_handle import FIRST_POP_TIME, ORIGIN_GROUP
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.store.reads.filtered_read import RecordFilter

_SIGN: Final = "_"
_FIRST_POP_TIME: Final = FIRST_POP_TIME.encode()
_ORIGIN_GROUP: Final = ORIGIN_GROUP.encode()


class RetryOwner(NamedTuple):
    """A group that sends back into a retry topic; `topic` is what it pops, if it does."""

    group: str
    topic: str = ""


class RetryOwners:
    """Reads the tables; has no state."""

    def __init__(self, topics: TopicTable, groups: GroupTable, offsets: OffsetTable) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def others(self, group: str, topic: str) -> list[RetryOwner]:
        """Other groups that may own messages in the retry topic of what `group` popped.

        If the group has no offset in the popped topic, the group named by the whole topic name
        counts as an owner, whether it exists or not.
        """
        name = topic.removeprefix(RETRY_TOPIC_PREFIX)
        popped = name.removeprefix(f"{group}{_SIGN}")
        found = [owner for owner in self._readings(name) if owner != RetryOwner(group, popped)]
        if self._topics.find(topic) is not None:
            consumed = self._offsets.topics_of(group)
            plain = RetryOwner(name)
            if topic not in consumed and popped not in consumed and plain not in found:
                found.append(plain)
        return found

    def all_of(self, topic: str) -> list[RetryOwner]:
        """Every group of this broker that may own messages in a retry topic; none for others."""
        if not topic.startswith(RETRY_TOPIC_PREFIX):
            return []
        return list(self._readings(topic[len(RETRY_TOPIC_PREFIX) :]))

    def popped(self, topic: str, properties: Mapping[str, str]) -> list[RetryOwner]:
        """The group that popped a message in a retry topic.

        None if it was sent back, several if it does not name its group.
        """
        if not topic.startswith(RETRY_TOPIC_PREFIX) or FIRST_POP_TIME not in properties:
            return []
        name, group = topic[len(RETRY_TOPIC_PREFIX) :], properties.get(ORIGIN_GROUP)
        if group is None:
            return list(self._readings(name))
        own = f"{group}{_SIGN}"
        return [RetryOwner(group, name[len(own) :])] if name.startswith(own) else []

    def filter(
        self, group: str, topic: str, inner: RecordFilter | None = None
    ) -> RecordFilter | None:
        """A filter for the group's own messages; `inner` where all are its own."""
        if not topic.startswith(RETRY_TOPIC_PREFIX):
            return inner
        name = topic[len(RETRY_TOPIC_PREFIX) :]
        if name == group:
            is_shared = any(owner.group != group for owner in self._readings(name))
            return _OwnOnly(group, inner, wants_popped=False) if is_shared else inner
        if name.startswith(f"{group}{_SIGN}"):
            return _OwnOnly(group, inner, wants_popped=True)
        return inner

    def _readings(self, name: str) -> Iterator[RetryOwner]:
        """The groups of this broker whose retries go to a topic of this name."""
        if self._groups.find(name) is not None:
            yield RetryOwner(name)
        at = name.find(_SIGN)
        while at >= 0:
            group, topic = name[:at], name[at + 1 :]
            if self._groups.find(group) is not None and self._topics.find(topic) is not None:
                yield RetryOwner(group, topic)
            at = name.find(_SIGN, at + 1)


class _OwnOnly:
    """Accepts messages that the group popped before, or that no other group popped."""

    __slots__ = ("_group", "_inner", "_wants_popped", "cost")

    def __init__(self, group: str, inner: RecordFilter | None, *, wants_popped: bool) -> None:
        self._group = group.encode()
        self._inner = inner
        self._wants_popped = wants_popped
        self.cost = 1 + (0 if inner is None else inner.cost)

    def accepts(self, property_text: bytes, /) -> bool:
        """Whether a message with this property text is the group's."""
        found = split_properties(property_text)
        was_popped = _FIRST_POP_TIME in found
        if was_popped:
            is_own = found.get(_ORIGIN_GROUP, self._group) == self._group
        else:
            is_own = not self._wants_popped
        return is_own and (self._inner is None or self._inner.accepts(property_text))
