"""Copies that the broker stores: as they are, or shortened if the properties do not fit."""

from __future__ import annotations

from broker_core.broker.redelivery import Redelivery
from broker_core.codec.records.message_record import MessageRecord
from broker_core.protocol_codes import PutStatus
from tests.store.small_store import bodies, new_disk, open_small


def record(text: bytes = b"") -> MessageRecord:
    return MessageRecord("T", 0, b"copy", text, reconsume_times=3, prepared_transaction_offset=-9)


def test_a_copy_keeps_its_fields() -> None:
    store = open_small(new_disk())
    result = Redelivery(store, None, lambda copy: copy).append(record(b"a\x01b\x02"))
    store.flush()
    found = store.message_at(result.position)
    assert found is not None
    assert (found.reconsume_times, found.prepared_transaction_offset) == (3, -9)
    assert found.properties["a"] == "b"
    store.close()


def test_a_text_without_room_for_the_checksum_is_shortened() -> None:
    store = open_small(new_disk())
    long = b"a\x01" + b"x" * 32_764 + b"\x02"
    kept = Redelivery(store, None, lambda copy: copy).append(record(long))
    assert kept.status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    shortened = Redelivery(store, None, lambda copy: copy._replace(property_text=b""))
    assert shortened.append(record(long)).ok
    store.flush()
    assert bodies(store, "T") == [b"copy"]
    store.close()
