"""What the permission rules ask a broker about things that requests name indirectly."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.broker.retry_owners import RetryOwner, RetryOwners
from broker_core.broker.sink_staging import SinkStaging
from broker_core.broker.system_topics import refuses_sends
from broker_core.broker.topic_table import TopicTable
from broker_core.broker.viewed_record import is_for_readers
from broker_core.codec.message_properties import REAL_TOPIC
from broker_core.codec.message_record import MessageRecord, decode_record
from broker_core.errors import CorruptStore
from broker_core.store.message_store import MessageStore


class BrokerResources:
    """Answers from the log and from what is being staged."""

    def __init__(
        self,
        store: MessageStore,
        staging: SinkStaging,
        topics: TopicTable,
        retry_owners: RetryOwners,
    ) -> None:
        self._topics = topics
        self._retry_owners = retry_owners
        self._store = store
        self._staging = staging

    def topic_at(self, position: int) -> str | None:
        """The topic of a message that readers may find at a log position."""
        record = self._record_at(position)
        return record.topic if record is not None and is_for_readers(record) else None

    def transaction_topic_at(self, position: int) -> str | None:
        """Where the half message at a log position will go; of another one, its own topic."""
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
            # Positions can be made up.
            return None

    def sink_of(self, staging_id: str) -> str | None:
        """The sink that a writer stages for."""
        return self._staging.sink_of(staging_id)

    def topics_of(self, staging_id: str) -> Iterable[str]:
        """The topics that records are staged for."""
        return self._staging.topics_of(staging_id)

    def is_system_topic(self, topic: str) -> bool:
        """Whether it must be named to be allowed."""
        return self._topics.is_system(topic)

    def other_retry_owners(self, group: str, topic: str) -> list[RetryOwner]:
        """Who else may have messages in the retries of what a group popped."""
        return self._retry_owners.others(group, topic)
