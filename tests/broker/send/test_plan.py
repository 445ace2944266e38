"""Batches of clients as columns, and the results of one request as one."""

from __future__ import annotations

import pytest

from broker_core.broker.send.plan import append_batches, merged, property_value, split_batch
from broker_core.client.produce.pending_send import batch_item
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.record_layout import TRANSACTION_PREPARED
from broker_core.errors import RemoteError
from broker_core.protocol_codes import PutStatus
from broker_core.store.writes.put_result import PutResult
from tests.codec.codec_backends import HOST
from tests.store.small_store import bodies, new_disk, open_small

SUFFIX = b"CLUSTER\x01C\x02"


def split(*items: bytes, sys_flag: int = 0) -> list[ColumnBatch]:
    return split_batch(sys_flag, 1_000, b"".join(items), (b"T", 0), SUFFIX)


def test_a_message_with_other_flags_starts_a_new_batch() -> None:
    items = [batch_item(b"%d" % number, "", flag) for number, flag in enumerate((1, 1, 2, 1))]
    assert [(batch.count, batch.flag) for batch in split(*items)] == [(2, 1), (1, 2), (1, 1)]
    assert [batch.count for batch in split(*items[:2])] == [2]


def test_a_batch_never_opens_a_transaction() -> None:
    (batch,) = split(batch_item(b"x", "", 0), sys_flag=TRANSACTION_PREPARED)
    assert batch.sys_flag == 0


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ((), "the batch is empty"),
        ((b"\0\0\0\x05",), "batch: "),
        ((batch_item(b"x", "TIMER_DELAY_SEC\x015\x02", 0),), "timer messages"),
    ],
)
def test_refused(items: tuple[bytes, ...], text: str) -> None:
    with pytest.raises(RemoteError, match=text):
        split(*items)


def test_all_parts_are_stored_in_order() -> None:
    store = open_small(new_disk())
    batches = split(*[batch_item(b"%d" % number, "", number) for number in range(3)])
    results = append_batches(store, batches, HOST, together=False)
    store.flush()
    assert bodies(store, "T") == [b"0", b"1", b"2"]
    whole = merged(results)
    assert (whole.queue_offset, whole.message_count, whole.ok) == (0, 3, True)
    assert whole.position == results[0].position
    store.close()


def test_the_last_status_counts() -> None:
    stored = PutResult(PutStatus.PUT_OK, position=10, queue_offset=5, message_count=2)
    failed = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "closed")
    assert merged((stored,)) is stored
    whole = merged((stored, failed))
    assert (whole.status, whole.remark) == (failed.status, "closed")
    assert (whole.position, whole.message_count) == (10, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("a\x01b\x02", "b"),
        ("x\x01y\x02a\x01b", "b"),
        ("aa\x01no\x02", ""),
        ("xa\x01no\x02", ""),
    ],
)
def test_the_value_of_a_property_in_a_text(text: str, value: str) -> None:
    assert property_value(text, "a") == value
