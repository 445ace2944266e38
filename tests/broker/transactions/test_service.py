"""Transactions end once: commits, repeated ends, restarts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker_core.broker.transactions.service import Verdict
from broker_core.codec.wire.topic_name import (
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from broker_core.errors import RemoteError, StoreUnusable
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.storage.files.file_system import DiskUsage
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from tests.broker.half_store import HalfStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
STORE_BUSY = PutResult(PutStatus.OS_PAGE_CACHE_BUSY, "busy")


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[HalfStore]:
    made = HalfStore(**request.param).start()
    yield made
    made.stop()


def refuse(patch: pytest.MonkeyPatch, *topics: str) -> None:
    """From now on the store takes nothing for these topics."""
    append = MessageStore.append_text

    def refusing(store: MessageStore, topic: str, *rest: object, **more: object) -> PutResult:
        return STORE_BUSY if topic in topics else append(store, topic, *rest, **more)  # type: ignore[arg-type]

    patch.setattr(MessageStore, "append_text", refusing)


def test_nothing_is_there_before_the_commit(broker: HalfStore) -> None:
    offset = broker.send(b"x")
    assert broker.bodies() == []
    assert broker.commit(offset).result.ok
    assert broker.bodies() == [b"x"]


def test_the_copy_is_what_rocketmq_stores(broker: HalfStore) -> None:
    offset = broker.send(b"x", "T", 3, TAGS="A", KEYS="k", own="1")
    half = broker.half(offset).record
    broker.commit(offset)
    (copy,) = broker.records("T", 3)
    assert copy.sys_flag == 8
    assert copy.prepared_transaction_offset == half.physical_offset
    assert copy.properties == half.properties
    assert copy.properties["TRAN_MSG"] == "true" and copy.properties["PGROUP"] == "PG"
    assert (copy.born_timestamp, copy.born_host) == (half.born_timestamp, half.born_host)
    assert half.sys_flag == 0
    assert broker.store.query("T", "k")[0].body == b"x"


def test_a_commit_again_changes_nothing(broker: HalfStore) -> None:
    offset = broker.send(b"x")
    first = broker.commit(offset)
    again = broker.commit(offset)
    assert (first.verdict, again.verdict) == (Verdict.COMMIT, Verdict.COMMIT)
    assert again.result == first.result
    assert broker.bodies() == [b"x"]


def test_the_first_verdict_counts(broker: HalfStore) -> None:
    offsets = [broker.send(b"%d" % n) for n in range(2)]
    assert broker.end(offsets[0], Verdict.ROLLBACK).verdict is Verdict.ROLLBACK
    assert broker.commit(offsets[0]).verdict is Verdict.ROLLBACK
    broker.commit(offsets[1])
    assert broker.end(offsets[1], Verdict.ROLLBACK).verdict is Verdict.COMMIT
    assert broker.bodies() == [b"1"]


@pytest.mark.parametrize("how", ["restart", "killed"])
def test_repeats_are_known_after_the_end_of_the_process(how: str) -> None:
    broker = HalfStore().start()
    committed, rolled_back, still_open = (broker.send(body) for body in (b"c", b"r", b"o"))
    delayed, given_up = broker.send(b"d", DELAY="2"), broker.send(b"g")
    broker.commit(committed)
    broker.commit(delayed)
    broker.end(rolled_back, Verdict.ROLLBACK)
    broker.end(given_up, Verdict.GIVEN_UP)
    broker.store.flush()
    after = getattr(broker, how)()
    assert after.open_offsets() == [still_open]
    assert after.end(committed).verdict is Verdict.COMMIT
    assert after.end(delayed).verdict is Verdict.COMMIT
    assert after.end(rolled_back).verdict is Verdict.ROLLBACK
    assert after.end(given_up).verdict is Verdict.GIVEN_UP
    assert after.bodies() == [b"c"]
    assert after.commit(still_open).verdict is Verdict.COMMIT
    assert after.bodies() == [b"c", b"o"]
    after.stop()


def test_a_crash_between_copy_and_op_record(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = HalfStore().start()
    pinned, offset = broker.send(b"p"), broker.send(b"x")
    with monkeypatch.context() as patch:
        refuse(patch, TRANSACTION_OP_TOPIC)
        assert broker.commit(offset).result.ok
        assert broker.open_for_apache() == [pinned, offset]
    after = broker.killed()
    assert after.open_offsets() == [pinned]
    assert after.commit(offset).verdict is Verdict.COMMIT
    assert after.bodies() == [b"x"]
    # Another broker learns of it, too.
    after.advance(1_000)
    after.store.flush()
    assert after.open_for_apache() == [pinned]
    after.stop()


def test_an_op_record_that_was_refused_comes_later(
    broker: HalfStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned, offset = broker.send(b"p"), broker.send(b"x")
    with monkeypatch.context() as patch:
        refuse(patch, TRANSACTION_OP_TOPIC)
        broker.commit(offset)
        broker.advance(5_000)
    assert broker.open_for_apache() == [pinned, offset]
    broker.advance(1_000)
    broker.store.flush()
    assert broker.open_for_apache() == [pinned]


@pytest.mark.parametrize("verdict", [Verdict.COMMIT, Verdict.ROLLBACK])
def test_a_verdict_that_cannot_be_stored_is_tried_again(
    broker: HalfStore, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    offset = broker.send(b"x")
    with monkeypatch.context() as patch:
        refuse(patch, TRANSACTION_OP_TOPIC, "T")
        assert broker.end(offset, verdict).result.status is PutStatus.OS_PAGE_CACHE_BUSY
        broker.advance(3_000)
        assert broker.open_offsets() == [offset]
        # The producer's first verdict counts, not a later one.
        broker.end(offset, Verdict.GIVEN_UP)
    broker.advance(1_000)
    assert broker.open_offsets() == []
    assert broker.bodies() == ([b"x"] if verdict is Verdict.COMMIT else [])
    assert broker.given_up() == []


def test_a_full_disk_loses_no_verdict() -> None:
    broker = HalfStore().start()
    offset = broker.send(b"x")
    broker.disk.usage = lambda: DiskUsage(100, 0)  # type: ignore[method-assign]
    broker.store.scheduler.tick()
    refused = [broker.end(offset).result.ok]
    broker.advance(11_000)
    broker.store.scheduler.tick()
    refused.append(broker.end(offset).result.ok)
    del broker.disk.usage
    broker.advance(11_000)
    broker.store.scheduler.tick()
    broker.advance(2_000)
    assert broker.bodies() == [b"x"], refused
    broker.stop()


def test_delayed_by_its_level_after_the_commit(broker: HalfStore) -> None:
    offset = broker.send(b"x", "T", 1, DELAY="2")
    broker.commit(offset)
    assert broker.bodies("T", 1) == []
    (waiting,) = broker.records(SCHEDULE_TOPIC, 1)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "1")
    assert waiting.sys_flag == 8
    assert waiting.prepared_transaction_offset == broker.half(offset).record.physical_offset


# Offsets and files


def test_offsets_follow_in_the_table_of_consumers(broker: HalfStore) -> None:
    offsets = [broker.send(b"%d" % n) for n in range(4)]
    for offset in (0, 1, 3):
        broker.commit(offsets[offset])
    broker.advance(1_500)
    broker.store.flush()
    broker.advance(1_500)
    assert broker.saved_offset(TRANSACTION_HALF_TOPIC) == 2
    assert broker.open_for_apache() == [2]
    broker.commit(offsets[2])
    broker.advance(3_000)
    assert broker.saved_offset(TRANSACTION_HALF_TOPIC) == 4
    ops = broker.store.offsets(TRANSACTION_OP_TOPIC, 0)[1]
    assert broker.saved_offset(TRANSACTION_OP_TOPIC) == ops
    assert broker.open_for_apache() == []


def test_foreign_offsets_are_put_right() -> None:
    broker = HalfStore().start()
    broker.send(b"x")
    broker.offsets.commit(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, 0, 1)
    after = broker.restart()
    assert after.open_offsets() == [0]
    after.stop()


def test_op_records_of_5x_brokers_are_read() -> None:
    broker = HalfStore().start()
    for number in range(6):
        broker.send(b"%d" % number)
    for body in (b"0,2,", b"3", b"", b"-1,x,5"):
        broker.store.append(Message(TRANSACTION_OP_TOPIC, body, tags="d"))
    broker.store.append(Message(TRANSACTION_OP_TOPIC, b"4", tags="other"))
    broker.store.flush()
    after = broker.killed()
    assert after.open_offsets() == [1, 4]
    after.stop()


def test_a_copy_of_another_broker_is_found_without_our_file() -> None:
    broker = HalfStore().start()
    offset = broker.send(b"x")
    position = broker.half(offset).record.physical_offset
    broker.store.append(Message("T", b"x", sys_flag=8, prepared_transaction_offset=position))
    broker.store.flush()
    after = broker.killed()
    assert after.open_offsets() == []
    after.stop()


def test_a_half_that_another_broker_stored_again_and_ended_before() -> None:
    broker = HalfStore().start()
    broker.send(b"first")
    again = broker.send(b"again")
    text = broker.half(again).record.property_text + b"TRAN_PREPARED_QUEUE_OFFSET\x010\x02"
    broker.store.append_text(
        TRANSACTION_HALF_TOPIC, 0, b"again", text,
        born_timestamp=0, born_host=broker.store.store_host,
    )  # fmt: skip
    broker.end(0, Verdict.ROLLBACK)
    broker.end(1, Verdict.ROLLBACK)
    broker.store.flush()
    broker.transactions.stop()
    broker.offsets.reset(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, 0, 1)
    broker.offsets.reset(TRANSACTION_GROUP, TRANSACTION_OP_TOPIC, 0, 0)
    broker.offsets.save()
    broker.store.close()
    after = broker.successor(broker.disk)
    assert after.open_offsets() == [2]
    assert after.commit(2).verdict is Verdict.ROLLBACK
    assert after.bodies() == [] and after.open_offsets() == []
    after.stop()


def test_nothing_is_written_for_brokers_without_transactions() -> None:
    broker = HalfStore().start()
    for _ in range(20):
        broker.store.append(Message("other", bytes(500)))
    broker.advance(5_000)
    broker.stop()
    after = HalfStore(broker.disk)
    assert after.table.load() is None and len(after.offsets) == 0
    after.store.close()


def test_a_file_of_another_log_is_not_believed() -> None:
    broker = HalfStore().start()
    broker.send(b"x")
    broker.stop()
    broker.table.save({"checks": {"0": 3}, "logPosition": 1 << 40, "storeId": "another"})
    after = broker.successor(broker.disk)
    assert after.open_offsets() == [0]
    assert after.transactions.window.checks(0) == 0
    after.stop()


def test_a_file_with_impossible_content() -> None:
    broker = HalfStore()
    broker.table.save({"checks": {"x": 1}, "logPosition": 0, "storeId": broker.store.store_id})
    with pytest.raises(StoreUnusable, match=r"transactionProgress\.json.*Repair"):
        broker.start()
    broker.store.close()


# Records that cannot be ended


def test_a_half_without_a_topic_is_left_out(
    broker: HalfStore, caplog: pytest.LogCaptureFixture
) -> None:
    broker.store.append(Message(TRANSACTION_HALF_TOPIC, b"x", properties={"REAL_TOPIC": "../x"}))
    good = broker.send(b"y")
    with caplog.at_level(logging.ERROR):
        assert broker.transactions.half(good - 1) is None
    assert "can never be committed" in caplog.text
    assert broker.open_offsets() == [good]


def test_a_transaction_belongs_to_its_sender() -> None:
    broker = HalfStore().start()
    with pytest.raises(RemoteError, match="names another group"):
        broker.send(b"x", PGROUP="Other")
    broker.stop()


# The window
