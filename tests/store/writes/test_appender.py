"""Puts of servers: property text unchanged, hosts as bytes, answers by callback."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.store.message_store import MessageStore

BORN = encode_host(("10.1.2.3", 4567))
SMALL = {"commit_log_file_size": 64 << 10, "consume_queue_file_size": 20_000,
         "index_hash_slots": 100, "index_entries_max": 1_000}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with MessageStore.open(tmp_path / "store", StoreConfig(**SMALL)) as opened:
        yield opened


def put(store: MessageStore, body: bytes, text: bytes = b"", **fields: Any) -> Any:
    fields = {"born_timestamp": 1234, "born_host": BORN, **fields}
    return store.append_text("T", 3, body, text, **fields)


def test_the_first_and_later_messages_are_stored_the_same_way(store: MessageStore) -> None:
    # The first message to a queue takes the long way, the second the short cut.
    for number in range(2):
        result = put(
            store, b"body", b"TAGS\x01A\x02KEYS\x01k\x02", flag=5, sys_flag=1, reconsume_times=2,
            prepared_offset=77,
        )  # fmt: skip
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, number)
    store.flush()
    for message in store.get("T", 3, 0).messages():
        assert message.body == b"body"
        assert (message.properties["TAGS"], message.properties["KEYS"]) == ("A", "k")
        assert (message.born_timestamp, message.born_host) == (1234, ("10.1.2.3", 4567))
        assert (message.flag, message.sys_flag & 1, message.reconsume_times) == (5, 1, 2)
        assert message.prepared_transaction_offset == 77
    assert [found.queue_offset for found in store.query("T", "k")] == [0, 1]


def test_limits_hold_on_both_ways(store: MessageStore) -> None:
    too_long = b"a\x01" + b"b" * 40_000
    for _ in range(2):
        assert put(store, b"x", too_long).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        assert put(store, bytes(5 << 20)).status is PutStatus.MESSAGE_ILLEGAL
        assert put(store, b"x").ok
    assert (
        store.append_text("../T", 0, b"", b"", born_timestamp=0, born_host=BORN).status
        is PutStatus.MESSAGE_ILLEGAL
    )


def test_ids_of_a_batch_lead_to_its_messages(store: MessageStore) -> None:
    bodies = (b"a", b"bcd", b"", b"e" * 300)
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(body))
    batch = ColumnBatch(
        4, ((b"T", 1),), None, (b"".join(bodies), array("q", ends), 8), born_host=BORN,
        store_host=encode_host(("127.0.0.1", 10911)),
    )  # fmt: skip
    result = store.append_batch(batch, together=True)
    store.flush()
    ids = store.message_ids(result).split(",")
    messages = store.get("T", 1, 0).messages()
    assert ids == [message.message_id for message in messages]
    assert [message.body for message in messages] == list(bodies)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_callbacks_say_when(
    tmp_path: Path, run_async: Callable[..., Any], flush: FlushDiskType
) -> None:
    async def scenario() -> None:
        store = MessageStore.open(tmp_path / "s", StoreConfig(flush_disk_type=flush, **SMALL))
        await store.start()
        said: list[PutStatus] = []
        result = put(store, b"x")
        store.when_acknowledged(result, said.append)
        assert said == ([] if flush is FlushDiskType.SYNC_FLUSH else [PutStatus.PUT_OK])
        await store.acknowledged(result)
        assert said == [PutStatus.PUT_OK]
        store.close()
        store.when_acknowledged(put(store, b"x"), said.append)
        assert said[1:] == [PutStatus.SERVICE_NOT_AVAILABLE]

    run_async(scenario())
