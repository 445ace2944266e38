"""Columns as Arrow arrays, and batches from Arrow."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.records import column_names as names
from broker_core.codec.records.arrow_columns import batch_from_arrow, to_arrow
from broker_core.errors import InvalidArgument
from tests.codec.codec_backends import HOST, batch_of, column, encode_all

EVERYTHING = 0x7FFF | names.MICROS


BODIES = (b"one", b"", b"three", b"four")


def sample(codec: ModuleType) -> tuple[bytes, bytes]:
    """Four records at log position 1000, queue offsets from 5, and their units."""
    batch = batch_of(
        *BODIES,
        tags=column(b"TagA", b"", b"\xff", b"TagB"),
        keys=column(b"", b"", b"k1 k2", b""),
        properties=column(b"UNIQ_KEY\x01u\x02", b"", b"a\x01b", b""),
    )
    log = encode_all(codec, batch, 1000, first_offset=5)
    found = codec.scan_records(log, 0, len(log), 1000, True, b"", b"")
    return log, found.queues[b"TopicTest", 0][1]


def spans_of(log: bytes, units: bytes) -> list[tuple[int, bytes]]:
    """The log in two pieces, cut between the second and the third record."""
    cut = int.from_bytes(units[40:48], "big") - 1000
    return [(1000, log[:cut]), (1000 + cut, log[cut:])]


def test_columns_become_arrow(codec: ModuleType) -> None:
    log, units = sample(codec)
    columns = codec.decode_columns(
        spans_of(log, units), units, 5, 0, b"TopicTest", EVERYTHING, True
    )
    batch = to_arrow(columns, 4)
    batch.validate(full=True)
    rows = batch.to_pydict()
    assert rows["value"] == list(BODIES)
    assert rows["topic"] == ["TopicTest"] * 4
    assert rows["tags"] == ["TagA", None, "\ufffd", "TagB"]
    assert rows["keys"] == [None, None, "k1 k2", None]
    assert rows["uniq_key"] == ["u", None, None, None]
    assert rows["properties"][0] == b"TAGS\x01TagA\x02UNIQ_KEY\x01u\x02"
    assert rows["properties"][1] is None
    assert rows["queue_id"] == [0] * 4
    assert rows["queue_offset"] == [5, 6, 7, 8]
    assert rows["physical_offset"][0] == 1000
    assert rows["message_id"][0] == "7F00000100002A9F00000000000003E8"
    assert batch.schema.field("store_timestamp").type == pa.timestamp("us", "UTC")
    assert batch.column("store_timestamp").cast(pa.int64()).to_pylist() == [1700000000123000] * 4
    assert batch.column("born_timestamp").cast(pa.int64()).to_pylist() == [1700000000000000] * 4
    assert rows["sys_flag"] == rows["flag"] == rows["reconsume_times"] == [0] * 4


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_batch_from_arrow_shares_sliced_arrays(codec: ModuleType, kind: pa.DataType) -> None:
    body = pa.array([b"skipped", *BODIES, b"skipped"], kind).slice(1, 4)
    tags = pa.array(["no", "TagA", None, "", "TagB"]).slice(1)
    index = pa.array([9, 0, 1, 0, 1], pa.int32()).slice(1)
    queues = ((b"T", 0), (b"T", 1))
    constants = {"born_host": HOST, "store_host": HOST, "born_timestamp": 1700000000000}
    batch = batch_from_arrow(body, queues, queue_index=index, tags=tags, **constants)
    expected = batch_of(
        *BODIES,
        queues=queues,
        queue_index=np.array([0, 1, 0, 1], np.int32),
        tags=column(b"TagA", b"", b"", b"TagB"),
    )
    assert encode_all(codec, batch) == encode_all(codec, expected)


def test_bytes_under_a_null_are_not_stored(codec: ModuleType) -> None:
    data, offsets = pa.py_buffer(b"abcd"), pa.py_buffer(np.array([0, 2, 4], np.int32))
    tags = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), offsets, data])
    body = pa.array([b"", b""], pa.binary())
    batch = batch_from_arrow(body, ((b"T", 0),), tags=tags, born_host=HOST, store_host=HOST)
    assert b"TAGS\x01ab\x02" in encode_all(codec, batch)
    assert b"cd" not in encode_all(codec, batch)


def test_empty_and_wrong_arrays() -> None:
    empty = batch_from_arrow(pa.array([], pa.binary()), ((b"T", 0),))
    assert empty.count == 0
    for body in (pa.array([b"a", None], pa.binary()), pa.array([1, 2])):
        with pytest.raises(InvalidArgument):
            batch_from_arrow(body, ((b"T", 0),))
    with pytest.raises(InvalidArgument):
        batch_from_arrow(pa.array([b"a"]), ((b"T", 0),), tags=pa.array(["a", "b"]))
    with pytest.raises(InvalidArgument):
        batch_from_arrow(pa.array([b"a"]), ((b"T", 0),), queue_index=pa.array([0], pa.int64()))
