"""Answers of brokers as runs of records, and runs as columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.pull.record_run import cut_runs, join_runs
from broker_core.codec.records import column_names as columns
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import CorruptRecord, MalformedRecord

QUEUE = MessageQueue("T", "broker-a", 0)


def record(offset: int, position: int, append_crc: bool = False, **changes: object) -> bytes:
    made = MessageRecord(
        "T", 0, b"b%d" % offset, queue_offset=offset, physical_offset=position
    )._replace(**changes)
    return encode_record(made, append_crc)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 1 << 40), st.booleans())
def test_whatever_lies_between_records_in_the_log(
    gaps: list[bool], start: int, append_crc: bool
) -> None:
    position, records = start, []
    for number, has_gap in enumerate(gaps):
        position += 777 if has_gap else 0
        records.append(record(start + number, position, append_crc))
        position += len(records[-1])
    [run] = cut_runs(b"".join(records), start, None)
    assert (run.first_offset, run.count) == (start, len(gaps))
    assert len(run.spans) == 1, "however its records are scattered in the log"
    found = run.columns(QUEUE, columns.VALUE | columns.QUEUE_OFFSET | columns.PHYSICAL_OFFSET)
    offsets = np.frombuffer(found["queue_offset"], np.int64)  # type: ignore[call-overload]
    assert offsets.tolist() == list(range(start, start + len(gaps)))
    bodies = b"".join(b"b%d" % (start + number) for number in range(len(gaps)))
    assert bytes(found["value"][0]) == bodies  # type: ignore[index]


def test_a_log_in_another_order_than_the_queue() -> None:
    body = record(0, 9_000) + record(1, 100) + record(2, 5_000)
    [run] = cut_runs(body, 0, None)
    found = run.columns(QUEUE, columns.PHYSICAL_OFFSET)
    positions = np.frombuffer(found["physical_offset"], np.int64)  # type: ignore[call-overload]
    assert positions.tolist() == [9_000, 100, 5_000]


def test_gaps_and_the_end_of_the_range() -> None:
    offsets = [3, 4, 7, 9, 10, 11]
    body = b"".join(record(offset, offset * 1_000) for offset in offsets)
    runs = cut_runs(body, 2, 11)
    assert [(run.first_offset, run.count) for run in runs] == [(3, 2), (7, 1), (9, 2)]
    assert b"".join(bytes(run.records) for run in runs) == body[: -len(record(11, 11_000))]
    for run in runs:
        run.columns(QUEUE, columns.VALUE)


def test_joined_runs_are_one() -> None:
    parts = [
        cut_runs(b"".join(record(o, o * 1_000) for o in range(at, at + 5)), at, None)[0]
        for at in (0, 5, 10)
    ]
    joined = join_runs(parts)
    assert (joined.first_offset, joined.count, joined.until_offset) == (0, 15, 15)
    assert joined.size == len(joined.records) == sum(part.size for part in parts)
    found = joined.columns(QUEUE, columns.QUEUE_OFFSET)
    offsets = np.frombuffer(found["queue_offset"], np.int64)  # type: ignore[call-overload]
    assert offsets.tolist() == list(range(15))


@pytest.mark.parametrize(
    ("body", "start"),
    [
        (b"\0" * 10, 0),
        (b"\0" * 200, 0),
        (record(0, 0)[:-1], 0),
        (record(0, 0) + b"\0\0\0\0", 0),
        (record(4, 0), 5),
        (record(5, 0) + record(5, 900), 5),
        (record(6, 0) + record(5, 900), 5),
        (b"\x7f\xff\xff\xff" + record(0, 0)[4:], 0),
        (b"\xff\xff\xff\xff" + record(0, 0)[4:], 0),
    ],
)
def test_answers_that_make_no_sense(body: bytes, start: int) -> None:
    with pytest.raises(MalformedRecord):
        cut_runs(body, start, None)


@pytest.mark.parametrize(
    "changes", [{"topic": "Other"}, {"queue_id": 3}], ids=["another topic", "another queue"]
)
def test_records_of_another_queue_are_refused(changes: dict[str, object]) -> None:
    [run] = cut_runs(record(0, 0, **changes), 0, None)  # type: ignore[arg-type]
    with pytest.raises(CorruptRecord):
        run.columns(QUEUE, columns.VALUE)


@pytest.mark.parametrize("append_crc", [False, True])
def test_a_flipped_bit_in_a_body_is_found(append_crc: bool) -> None:
    body = bytearray(record(0, 0, append_crc))
    body[88] ^= 1
    [run] = cut_runs(bytes(body), 0, None)
    with pytest.raises(CorruptRecord, match="checksum"):
        run.columns(QUEUE, columns.VALUE)


def test_an_empty_answer_has_no_runs() -> None:
    assert cut_runs(b"", 5, 9) == []
