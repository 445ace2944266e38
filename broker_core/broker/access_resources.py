"""What the permission rules ask a broker about things that requests name indirectly."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.broker.sink_staging import SinkStaging
from broker_core.broker.system_topics import is_system_topic, refuses_sends
from broker_core.codec.message_properties import REAL_TOPIC
from broker_core.codec.message_record import decode_record
from broker_core.errors import CorruptStore
from broker_core.store.message_store import MessageStore


class BrokerResources:
    """Answers from the log and from what is being staged."""

    def __init__(self, store: MessageStore, staging: SinkStaging) -> None:
        self._store = store
        self._staging = staging

    def topic_at(self, position: int) -> str | None:
        """The topic of the message at a log position: of a parked one, where it will go."""
        try:
            data = self._store.record_at(position)
            if data is None:
                return None
            record = decode_record(data)
        except CorruptStore:
            # Whoever asks may have made the number up.
            return None
        if refuses_sends(record.topic):
            return record.properties.get(REAL_TOPIC, record.topic)
        return record.topic

    def sink_of(self, staging_id: str) -> str | None:
        """The sink that a writer stages for."""
        return self._staging.sink_of(staging_id)

    def topics_of(self, staging_id: str) -> Iterable[str]:
        """The topics that records are staged for."""
        return self._staging.topics_of(staging_id)

    def is_system_topic(self, topic: str) -> bool:
        """Whether it must be named to be allowed."""
        return is_system_topic(topic)
