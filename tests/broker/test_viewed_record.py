"""Records that any client may ask for by position."""

from __future__ import annotations

import pytest

from broker_core.broker.viewed_record import is_for_readers, viewed_record
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.records.record_layout import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC
from broker_core.store.writes.message import Message
from tests.store.small_store import new_disk, open_small


@pytest.mark.parametrize(
    ("topic", "sys_flag", "is_shown"),
    [
        ("T", 0, True),
        ("T", TRANSACTION_COMMIT, True),
        ("T", TRANSACTION_PREPARED, False),
        ("T", TRANSACTION_ROLLBACK, False),
        (SCHEDULE_TOPIC, 0, False),
        (TRANSACTION_HALF_TOPIC, 0, False),
    ],
)
def test_what_consumers_may_see(topic: str, sys_flag: int, is_shown: bool) -> None:
    assert is_for_readers(MessageRecord(topic, 0, b"", sys_flag=sys_flag)) is is_shown


def test_administrators_see_all() -> None:
    store = open_small(new_disk())
    shown = store.put_now(Message("T", b"shown")).position
    hidden = store.put_now(Message(SCHEDULE_TOPIC, b"hidden")).position
    found = viewed_record(store, shown)
    assert found is not None
    assert found[1].body == b"shown"
    assert viewed_record(store, hidden) is None
    assert viewed_record(store, hidden, is_administrator=True) is not None
    assert viewed_record(store, store.log_range[1] + 1_000) is None
    store.close()
