"""Look-ups of the permission rules for things that requests name indirectly."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_core.broker.context import BrokerContext
from broker_core.broker.retry_owners import RetryOwner, RetryOwners
from broker_core.broker.viewed_record import is_for_readers
from broker_core.codec.records.message_properties import REAL_TOPIC
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.wire.system_topics import refuses_sends
from broker_core.errors import CorruptStore


class BrokerResources:
    """Answers from the log, the tables, and the sink's staging, which `sink_of` and `topics_of`
    ask by staging id.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        sink_of: Callable[[str], str | None],
        topics_of: Callable[[str], Iterable[str]],
    ) -> None:
        self._store = context.store
        self._topics = context.topics
        self._retry_owners = RetryOwners(context.topics, context.groups, context.offsets)
        self._sink_of = sink_of
        self._topics_of = topics_of

    def topic_at(self, position: int) -> str | None:
        """The topic of a message that readers may find at a log position."""
        record = self._record_at(position)
        return record.topic if record is not None and is_for_readers(record) else None

    def transaction_topic_at(self, position: int) -> str | None:
        """The destination of the half message at a log position; of another record, its topic."""
        record = self._record_at(position)
        if record is None:
            return None
        if refuses_sends(record.topic):
            return record.properties.get(REAL_TOPIC, record.topic)
        return record.topic

    def _record_at(self, position: int) -> MessageRecord | None:
        try:
            data = self._store.record_at(position)
            return None if data is None else decode_record(data)
        except CorruptStore:
            # The position may be made up.
            return None

    def sink_of(self, staging_id: str) -> str | None:
        """The sink that a writer stages for."""
        return self._sink_of(staging_id)

    def topics_of(self, staging_id: str) -> Iterable[str]:
        """The topics that records are staged for."""
        return self._topics_of(staging_id)

    def is_system_topic(self, topic: str) -> bool:
        """Whether a rule must name the topic itself to allow it."""
        return self._topics.is_system(topic)

    def other_retry_owners(self, group: str, topic: str) -> list[RetryOwner]:
        """Other groups with messages in the retry topic of what a group popped."""
        return self._retry_owners.others(group, topic)

    def retry_owners(self, topic: str) -> list[RetryOwner]:
        """All groups with messages in a retry topic; none for other topics."""
        return self._retry_owners.all_of(topic)

    def popped_by(self, position: int) -> list[RetryOwner]:
        """The group whose retry of a popped message is at a log position."""
        record = self._record_at(position)
        return [] if record is None else self._retry_owners.popped(record.topic, record.properties)
