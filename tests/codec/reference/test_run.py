"""Template runs: checked by `inspect_run` and `find_unusual`, copied by `relocate_run`."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import encode_places
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.records.record_layout import PREPARED_OFFSET_AT, SYS_FLAG_AT
from broker_core.errors import CorruptRecord, MalformedRecord
from tests.codec.codec_backends import BACKENDS, HOST, HOST_V6, batch_of, column, encode_all

QUEUES = ((b"A", 0), (b"B", 1), (b"B", 2))
STORE_MS = 1700000000123


def three_queue_batch(**fields: object):  # type: ignore[no-untyped-def]
    bodies = [b"x" * (row * 7 % 50) for row in range(40)]
    index = np.arange(40, dtype=np.int32) % 3
    tags = column(*(b"t" * (row % 4) for row in range(40)))
    return batch_of(*bodies, queues=QUEUES, queue_index=index, tags=tags, **fields)


@pytest.mark.parametrize("append_crc", [True, False])
def test_relocated_run_equals_direct_encoding(codec: ModuleType, append_crc: bool) -> None:
    batch = three_queue_batch(append_crc=append_crc)
    run = encode_all(codec, batch, -1)
    next_offsets = np.array([100, 200, 300], np.int64)
    out = bytearray(len(run) + 8)
    end = codec.relocate_run(run, 0, next_offsets, STORE_MS, HOST, out, 0, len(out), 4096)
    assert end == (len(run), len(run))
    assert next_offsets.tolist() == [114, 213, 313]
    direct = bytearray(len(run) + 8)
    offsets = np.array([100, 200, 300], np.int64)
    codec.encode_batch(batch, 0, offsets, STORE_MS, direct, 0, len(direct), 4096)
    assert out == direct


def test_relocation_stops_before_the_record_that_does_not_fit(codec: ModuleType) -> None:
    run = encode_all(codec, batch_of(b"a", b"b"), -1)
    half = len(run) // 2
    offsets, out = np.zeros(1, np.int64), bytearray(1000)
    limit = 10 + half + 8
    assert codec.relocate_run(run, 0, offsets, 0, HOST, out, 10, limit - 1, 0) == (0, 10)
    assert codec.relocate_run(run, 0, offsets, 0, HOST, out, 10, limit, 0) == (half, 10 + half)
    again = codec.relocate_run(run, half, offsets, 0, HOST, out, 0, 1000, 0)
    assert again == (len(run), half)
    assert offsets[0] == 2


def test_inspection_lays_out_by_the_roll_rule(codec: ModuleType) -> None:
    run = encode_all(codec, three_queue_batch(), -1)
    count, end, counts = codec.inspect_run(run, 3, 0, 1 << 20)
    assert (count, end) == (40, len(run))
    assert np.frombuffer(counts, np.int64).tolist() == [14, 13, 13]
    record = encode_all(codec, batch_of(b"a"), -1)
    size = len(record)
    assert codec.inspect_run(record, 1, 1000 - size - 8, 1000)[1] == 1000 - 8
    assert codec.inspect_run(record, 1, 1000 - size - 7, 1000)[1] == 1000 + size
    assert codec.inspect_run(b"", 1, 77, 1000) == (0, 77, bytes(8))


def test_prepared_records_are_not_in_the_counts(codec: ModuleType) -> None:
    run = encode_all(codec, batch_of(b"a", b"b", sys_flag=0x04), -1)
    assert codec.inspect_run(run, 1, 0, 1000) == (2, len(run), bytes(8))
    offsets, out = np.array([5], np.int64), bytearray(1000)
    codec.relocate_run(run, 0, offsets, 0, HOST, out, 0, 1000, 0)
    assert offsets[0] == 5
    assert out[20:28] == bytes(8)


def template(**fields: object) -> bytes:
    return encode_record(MessageRecord("T", 0, b"body")._replace(**fields))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (template(queue_offset=1, physical_offset=1), reasons.BAD_QUEUE_REFERENCE),
        (template(queue_offset=1)[:-1] + b"\x03", reasons.CRC_TAIL_DAMAGED),
        (template(queue_offset=0), reasons.BAD_ORDINAL),
        (template(queue_offset=2), reasons.BAD_ORDINAL),
        (template(queue_offset=1, body=b"x" * 900), reasons.RECORD_EXCEEDS_SEGMENT),
        (template(queue_offset=1)[:-1], reasons.SIZE_PAST_LIMIT),
        (b"junk", reasons.HEADER_CUT),
        (bytes(100), reasons.BAD_MAGIC),
    ],
)
def test_bad_templates_are_refused(codec: ModuleType, second: bytes, reason: str) -> None:
    first = template()
    with pytest.raises(MalformedRecord) as caught:
        codec.inspect_run(first + second, 1, 0, 1000)
    assert (caught.value.position, caught.value.reason) == (len(first), reason)


def test_relocation_refuses_what_it_cannot_place(codec: ModuleType) -> None:
    run = encode_all(codec, three_queue_batch(), -1)
    out = bytearray(len(run) + 8)
    with pytest.raises(MalformedRecord, match=reasons.BAD_QUEUE_REFERENCE):
        codec.relocate_run(run, 0, np.zeros(2, np.int64), 0, HOST, out, 0, len(out), 0)
    with pytest.raises(MalformedRecord, match=reasons.STORE_HOST_DISAGREES):
        codec.relocate_run(run, 0, np.zeros(3, np.int64), 0, HOST_V6, out, 0, len(out), 0)
    with pytest.raises(MalformedRecord, match=reasons.HEADER_CUT):
        codec.relocate_run(b"junk", 0, np.zeros(3, np.int64), 0, HOST, out, 0, len(out), 0)
    with pytest.raises(ValueError, match=reasons.BAD_RANGE):
        codec.relocate_run(run, 0, np.zeros(3, np.int64), 0, HOST, out, 0, len(out) + 1, 0)


def test_relocation_compares_topics_and_queues(codec: ModuleType) -> None:
    """What was inspected may have changed by then."""
    run = encode_all(codec, three_queue_batch(), -1)
    out = bytearray(len(run) + 8)

    def relocate(*queues: tuple[bytes, int]) -> int:
        offsets = np.zeros(3, np.int64)
        places = encode_places(queues)
        done, _ = codec.relocate_run(run, 0, offsets, 0, HOST, out, 0, len(out), 0, places)
        return int(done)

    assert relocate(*QUEUES) == len(run)
    with pytest.raises(MalformedRecord, match=reasons.TOPIC_DISAGREES):
        relocate((b"A", 0), (b"C", 1), (b"B", 2))
    with pytest.raises(MalformedRecord, match=reasons.QUEUE_ID_DISAGREES):
        relocate((b"A", 0), (b"B", 1), (b"B", 3))
    with pytest.raises(ValueError, match=reasons.BAD_QUEUE_REFERENCE):
        relocate((b"A", 0), (b"B", 1))


@pytest.mark.parametrize("damaged", ["body", "checksum", "checksum past 31 bits"])
def test_damage_after_the_inspection_stays_visible(codec: ModuleType, damaged: str) -> None:
    """The copy gets no new checksum over changed bytes."""
    run = bytearray(encode_all(codec, batch_of(b"b" * 300, append_crc=True), -1))
    codec.inspect_run(run, 1, 0, 1 << 20)
    if damaged == "body":
        run[150] ^= 4
    elif damaged == "checksum":
        run[-3] ^= 1
    else:
        run[-11:-1] = b"9" * 10
    out = bytearray(len(run) + 8)
    offsets = np.full(1, 7, np.int64)
    assert codec.relocate_run(run, 0, offsets, 5, HOST, out, 0, len(out), 100)[0] == len(run)
    with pytest.raises(CorruptRecord) as refused:
        codec.check_record(out, 0, len(run), 100, 1)
    assert refused.value.reason == reasons.RECORD_CRC


def run_of(*bodies: bytes) -> tuple[bytearray, list[int]]:
    """Template records, and where each begins."""
    batch = batch_of(*bodies)
    out = bytearray(1 << 20)
    _, end = BACKENDS[0].encode_batch(batch, 0, bytearray(8), 0, out, 0, len(out), -1)
    starts, at = [], 0
    while at < end:
        starts.append(at)
        at += struct.unpack_from(">i", out, at)[0]
    return out[:end], starts


def test_plain_records_are_passed_by(codec: ModuleType) -> None:
    run, starts = run_of(b"a", b"b" * 3_000, b"")
    assert codec.find_unusual(bytes(run), 0, 4_000) == -1
    assert codec.find_unusual(bytes(run), len(run), 4_000) == -1
    assert codec.find_unusual(b"", 0, 0) == -1
    assert codec.find_unusual(bytes(run), 0, 1_000) == starts[1]
    assert codec.find_unusual(bytes(run), starts[2], 1_000) == -1


@pytest.mark.parametrize("flag", [0x04, 0x08, 0x0C, 0x10, 0x20])
def test_unusual_flags(codec: ModuleType, flag: int) -> None:
    run, starts = run_of(b"a", b"b", b"c")
    struct.pack_into(">i", run, starts[1] + SYS_FLAG_AT, flag)
    assert codec.find_unusual(bytes(run), 0, 4_000) == starts[1]
    assert codec.find_unusual(bytes(run), starts[2], 4_000) == -1


@pytest.mark.parametrize("prepared", [1, -1, 1 << 62])
def test_outcomes_of_transactions(codec: ModuleType, prepared: int) -> None:
    run, starts = run_of(b"a", b"b")
    struct.pack_into(">q", run, starts[1] + PREPARED_OFFSET_AT, prepared)
    assert codec.find_unusual(bytes(run), 0, 4_000) == starts[1]


@pytest.mark.parametrize(
    ("size", "reason"),
    [(90, reasons.SIZE_TOO_SMALL), (-5, reasons.SIZE_TOO_SMALL), (9_999, reasons.SIZE_PAST_LIMIT)],
)
def test_sizes_that_do_not_add_up(codec: ModuleType, size: int, reason: str) -> None:
    run, starts = run_of(b"a", b"b")
    struct.pack_into(">i", run, starts[1], size)
    with pytest.raises(MalformedRecord, match=reason) as caught:
        codec.find_unusual(bytes(run), 0, 4_000)
    assert caught.value.where == starts[1] if hasattr(caught.value, "where") else True
    with pytest.raises(MalformedRecord, match=reasons.HEADER_CUT):
        codec.find_unusual(bytes(run[:50]), 0, 4_000)


@pytest.mark.parametrize(("start", "size_max"), [(-1, 1), (5, 1), (0, -1)])
def test_wrong_ranges(codec: ModuleType, start: int, size_max: int) -> None:
    with pytest.raises(ValueError, match=reasons.BAD_RANGE):
        codec.find_unusual(b"abc", start, size_max)


def outcome(codec: ModuleType, *arguments: Any) -> Any:
    try:
        return codec.find_unusual(*arguments)
    except (MalformedRecord, ValueError) as error:
        return type(error).__name__, str(error)


@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=4),
    size_max=st.integers(0, 600),
    cut=st.integers(0, 200),
)
def test_both_backends_find_the_same(
    bodies: list[bytes], changes: list[tuple[int, int]], size_max: int, cut: int
) -> None:
    run, starts = run_of(*bodies)
    for at, value in changes:
        run[at % len(run)] = value
    data = bytes(run[: max(len(run) - cut, 0)])
    for start in (0, *starts):
        native, python = (outcome(codec, data, start, size_max) for codec in BACKENDS)
        assert native == python
