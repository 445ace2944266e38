"""Appends copies that the broker itself makes: delivered delays, ended transactions."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_record import MessageRecord
from broker_core.protocol_codes import PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult


class Redelivery:
    """`shortened` drops properties of a copy that exceeds the size limit."""

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats | None,
        shortened: Callable[[MessageRecord], MessageRecord],
    ) -> None:
        self._store = store
        self._stats = stats
        self._shortened = shortened

    def append(self, copy: MessageRecord) -> PutResult:
        """Append and count it."""
        result = self._append_as_it_is(copy)
        if result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
            result = self._append_as_it_is(self._shortened(copy))
        if result.ok and self._stats is not None:
            self._stats.put(copy.topic, 1, result.end_position - result.position)
        return result

    def _append_as_it_is(self, copy: MessageRecord) -> PutResult:
        return self._store.append_text(
            copy.topic,
            copy.queue_id,
            copy.body,
            copy.property_text,
            flag=copy.flag,
            sys_flag=copy.sys_flag,
            born_timestamp=copy.born_timestamp,
            born_host=encode_host(copy.born_host),
            reconsume_times=copy.reconsume_times,
            prepared_offset=copy.prepared_transaction_offset,
        )
