"""Columns to records: equal to encoding each message alone, limits refused at their row."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from broker_core import digest_rows
from broker_core.codec.records.message_record import MessageRecord, decode_record, encode_record
from broker_core.codec.records.record_layout import CRC_TAIL_SIZE, looks_like_crc_tail
from broker_core.codec.reference.batch import open_batch, plan_rows, read_row
from broker_core.codec.reference.encode import encode_batch, encode_rows
from broker_core.errors import MalformedBatch
from tests.codec.codec_backends import BACKENDS, HOST, HOST_V6, batch_of, column, encode_all
from tests.codec.reference.batch_faults import BATCH_FAULTS, BIG_TEXT

STORE_MS = 1700000000123
QUEUES = ((b"TopicTest", 0), (b"TopicTest", 5), (b"%RETRY%" + b"g" * 150, 1))
TEXT = st.binary(max_size=12).map(lambda text: text.replace(b"\x01", b"").replace(b"\x02", b""))
ROWS = st.lists(
    st.tuples(st.binary(max_size=40), TEXT, TEXT, st.binary(max_size=30), st.integers(0, 2)),
    max_size=20,
)


def expected_text(tags: bytes, keys: bytes, properties: bytes) -> bytes:
    text = b"TAGS\x01%b\x02" % tags if tags else b""
    text += b"KEYS\x01%b\x02" % keys if keys else b""
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return text + properties


@pytest.mark.parametrize("codec", BACKENDS)
@given(rows=ROWS, append_crc=st.booleans(), width=st.sampled_from([4, 8]), v6=st.booleans())
def test_batch_equals_messages(
    codec: ModuleType,
    rows: list[tuple[bytes, bytes, bytes, bytes, int]],
    append_crc: bool,
    width: int,
    v6: bool,
) -> None:
    texts = [expected_text(*row[1:4]) for row in rows]
    assume(append_crc or not any(looks_like_crc_tail(text[-CRC_TAIL_SIZE:]) for text in texts))
    bodies, tags, keys, properties, index = zip(*rows, strict=True) if rows else ((),) * 5
    store_host, store_address = (HOST_V6, "fe80::1") if v6 else (HOST, "127.0.0.1")
    batch = batch_of(
        *bodies,
        queues=QUEUES,
        queue_index=np.array(index, np.int32),
        body=column(*bodies, width=width),
        tags=column(*tags, width=width),
        keys=column(*keys),
        properties=column(*properties),
        born_timestamp=np.arange(len(rows), dtype=np.int64),
        store_host=store_host,
        flag=7,
        sys_flag=0x31,
        reconsume_times=2,
        prepared_offset=99,
        append_crc=append_crc,
    )
    encoded = encode_all(codec, batch, 4096, first_offset=10)
    next_offsets = [10, 10, 10]
    expected = b""
    for row, (body, tag, key, text, queue) in enumerate(rows):
        expected += encode_record(
            MessageRecord(
                QUEUES[queue][0].decode(), QUEUES[queue][1], body, expected_text(tag, key, text),
                7, 1, next_offsets[queue], 4096 + len(expected), row, ("127.0.0.1", 10911),
                STORE_MS, (store_address, 10911), 2, 99,
            ),
            append_crc,
        )  # fmt: skip
        next_offsets[queue] += 1
    assert encoded == expected


def test_equal_rows_take_the_same_bytes_as_mixed_rows(codec: ModuleType) -> None:
    bodies = [bytes([row % 251]) * 50 for row in range(5000)]
    equal = encode_all(codec, batch_of(*bodies))
    mixed = encode_all(codec, batch_of(*bodies, b"longer" * 20))
    assert mixed.startswith(equal)


def test_stops_before_the_row_that_does_not_fit(codec: ModuleType) -> None:
    batch = batch_of(b"a" * 10, b"b" * 20, b"c" * 30)
    sizes = [100 + 20 + len(body) for body in (b"a" * 10, b"b" * 20, b"c" * 30)]
    out = bytearray(1000)
    offsets = np.zeros(1, np.int64)
    room = sizes[0] + sizes[1] + 8
    row, end = codec.encode_batch(batch, 0, offsets, 0, out, 100, 100 + room, 0)
    assert (row, end, offsets[0]) == (2, 100 + sizes[0] + sizes[1], 2)
    row, end = codec.encode_batch(batch, 0, np.zeros(1, np.int64), 0, out, 0, room - 1, 0)
    assert (row, end) == (1, sizes[0])
    assert codec.encode_batch(batch, 2, offsets, 0, out, 0, 1000, 5000) == (3, sizes[2])
    record = decode_record(out)
    assert (record.queue_offset, record.physical_offset, record.body) == (2, 5000, b"c" * 30)


@pytest.mark.parametrize("sys_flag", [0x04, 0x0C])
def test_prepared_and_rollback_take_no_queue_offset(codec: ModuleType, sys_flag: int) -> None:
    batch = batch_of(b"a", b"b", sys_flag=sys_flag)
    out = bytearray(400)
    offsets = np.array([9], np.int64)
    codec.encode_batch(batch, 0, offsets, 0, out, 0, 400, 0)
    assert offsets[0] == 9
    assert decode_record(out).queue_offset == 0


@pytest.mark.parametrize(("fields", "row", "reason"), BATCH_FAULTS)
def test_faults_name_their_row(
    codec: ModuleType, fields: dict[str, object], row: int, reason: str
) -> None:
    batch = batch_of(b"a", b"b", **fields)
    with pytest.raises(MalformedBatch) as caught:
        codec.measure_batch(batch)
    assert (caught.value.row, caught.value.reason) == (row, reason)
    offsets, out = np.zeros(8, np.int64), bytearray(1000)
    with pytest.raises(MalformedBatch) as caught:
        codec.encode_batch(batch, 0, offsets, 0, out, 0, 1000, 0)
    assert (caught.value.row, caught.value.reason) == (row, reason)
    assert offsets[0] == max(row, 0)


def test_longest_property_text_is_accepted(codec: ModuleType) -> None:
    total, largest = codec.measure_batch(batch_of(b"", properties=column(BIG_TEXT)))
    assert total == largest == 100 + 32767


def test_wrong_arguments_are_refused(codec: ModuleType) -> None:
    batch, offsets, out = batch_of(b"a"), np.zeros(1, np.int64), bytearray(300)
    for arguments in [
        (batch, 2, offsets, 0, out, 0, 300, 0),
        (batch, -1, offsets, 0, out, 0, 300, 0),
        (batch, 0, bytearray(7), 0, out, 0, 300, 0),
        (batch, 0, offsets, 0, out, 0, 301, 0),
        (batch, 0, offsets, 0, out, -1, 300, 0),
        (batch, 0, offsets, 0, out, 200, 100, 0),
        (batch, 0, offsets, 0, out, 0, 300, -2),
    ]:
        with pytest.raises(ValueError):
            codec.encode_batch(*arguments)
    with pytest.raises(BufferError):
        codec.encode_batch(batch, 0, offsets, 0, bytes(300), 0, 300, 0)
    with pytest.raises(OverflowError):
        codec.encode_batch(batch, 0, offsets, 1 << 63, out, 0, 300, 0)
    with pytest.raises(TypeError):
        codec.measure_batch(("not", "a", "batch"))
    with pytest.raises(TypeError):
        codec.measure_batch(batch._replace(queues=(("text", 0),)))
    assert not any(out)


OFFSETS = st.lists(st.integers(-2, 30), min_size=13, max_size=13)
RISING = OFFSETS.map(lambda offsets: sorted(abs(offset) for offset in offsets))


def outcome(call: Callable[[np.ndarray, bytearray], tuple[int, int]]) -> tuple[object, ...]:
    offsets, out = np.array([3, 4], np.int64), bytearray(2000)
    result: object
    try:
        result = call(offsets, out)
    except MalformedBatch as error:
        result = (error.row, error.reason)
    return result, offsets.tolist(), bytes(out)


@given(
    body=st.one_of(RISING, OFFSETS),
    tags=st.one_of(RISING, OFFSETS),
    properties=st.one_of(RISING, OFFSETS),
    data=st.binary(min_size=26, max_size=30),
    index=st.lists(st.integers(-1, 2).map(lambda queue: min(queue, 1)), min_size=12, max_size=12),
    limit=st.integers(0, 2000),
    append_crc=st.booleans(),
    position=st.sampled_from([-1, 0, 5000]),
)
def test_rows_and_columns_give_the_same(
    body: list[int],
    tags: list[int],
    properties: list[int],
    data: bytes,
    index: list[int],
    limit: int,
    append_crc: bool,
    position: int,
) -> None:
    """The pure codec has a path for few rows and one for many; here both take twelve."""
    clean = data.replace(b"\x01", b"a").replace(b"\x02", b"b")
    batch = batch_of(
        *[b""] * 12,
        queues=((b"T", 0), (b"Topic", 7)),
        queue_index=np.array(index, np.int32),
        body=(data, np.array(body, np.int32), 4),
        tags=(data if append_crc else clean, np.array(tags, np.int32), 4),
        properties=(clean, np.array(properties, np.int64), 8),
        append_crc=append_crc,
    )
    opened = open_batch(batch)
    by_rows = outcome(
        lambda offsets, out: encode_rows(
            opened, 0, offsets, STORE_MS, memoryview(out), 0, limit, position
        )
    )
    by_columns = outcome(
        lambda offsets, out: encode_batch(batch, 0, offsets, STORE_MS, out, 0, limit, position)
    )
    assert by_rows == by_columns
    plan = plan_rows(opened, 0, 12)
    sizes = []
    try:
        for row in range(12):
            sizes.append(read_row(opened, row).size)
    except MalformedBatch as error:
        assert (plan.stop, plan.reason) == (error.row, error.reason)
    else:
        assert (plan.stop, plan.reason) == (12, "")
    assert plan.sizes.tolist() == sizes


@pytest.mark.parametrize("codec", BACKENDS)
@given(
    rows=ROWS,
    width=st.sampled_from([4, 8]),
    flag=st.sampled_from([0, 5, -1]),
    append_crc=st.booleans(),
)
def test_rows_are_digested_while_they_are_written(
    codec: ModuleType,
    rows: list[tuple[bytes, bytes, bytes, bytes, int]],
    width: int,
    flag: int,
    append_crc: bool,
) -> None:
    texts = [expected_text(*row[1:4]) for row in rows]
    assume(append_crc or not any(looks_like_crc_tail(text[-CRC_TAIL_SIZE:]) for text in texts))
    bodies, tags, keys, properties, index = zip(*rows, strict=True) if rows else ((),) * 5
    batch = batch_of(
        *bodies,
        queues=QUEUES,
        queue_index=np.array(index, np.int32),
        body=column(*bodies, width=width),
        tags=column(*tags, width=width),
        keys=column(*keys),
        properties=column(*properties),
        append_crc=append_crc,
        flag=flag,
    )
    total, _ = codec.measure_batch(batch)
    plain, out = bytearray(total + 8), bytearray(total + 8)
    codec.encode_batch(batch, 0, np.zeros(3, np.int64), 0, plain, 0, len(plain), -1)
    # As a writer of blocks does it: the rest is written by a second call.
    digest, ordinals = np.array([1 << 63], np.uint64), np.zeros(3, np.int64)
    row, end = codec.encode_batch(batch, 0, ordinals, 0, out, 0, len(out) // 2, -1, digest)
    codec.encode_batch(batch, row, ordinals, 0, out, end, len(out), -1, digest=digest)
    assert out == plain
    assert digest[0] == ((1 << 63) + digest_rows(batch)) % (1 << 64)


@pytest.mark.parametrize("codec", BACKENDS)
def test_digests_that_cannot_be_taken(codec: ModuleType) -> None:
    good, bad = batch_of(b"a", b"b"), batch_of(b"a", b"b", tags=column(b"", b"\x01"))
    out, offsets = bytearray(1000), np.zeros(1, np.int64)
    for wrong, error in (
        (bytearray(7), ValueError),
        (bytearray(16), ValueError),
        (bytes(8), BufferError),
        ("text", TypeError),
    ):
        with pytest.raises(error):
            codec.encode_batch(good, 0, offsets, 0, out, 0, 1000, 0, wrong)
    digest = np.array([7], np.uint64)
    with pytest.raises(MalformedBatch):
        codec.encode_batch(bad, 0, offsets, 0, out, 0, 1000, 0, digest)
    # Nothing is written when nothing fits.
    assert codec.encode_batch(good, 0, offsets, 0, out, 0, 20, 0, digest) == (0, 0)
    assert digest[0] == 7
