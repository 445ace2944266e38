"""Records as Arrow batches, without a broker."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from broker_core import MessageQueue, errors
from broker_core.client.pull.record_run import RecordRun, cut_runs
from broker_core.codec.records import compression
from broker_core.codec.records.message_record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    MessageRecord,
    encode_record,
)
from pyspark_rmq.columns import column_of
from pyspark_rmq.payloads.bad_records import UNREADABLE
from pyspark_rmq.source.rows import message_batches
from pyspark_rmq.source.rows.conditional_rows import ConditionalRows
from pyspark_rmq.source.rows.message_batches import BatchMaker, arrow_schema
from pyspark_rmq.source.rows.predicates import Predicate

QUEUE = MessageQueue("T", "broker-a", 3)


def run_of(*bodies: bytes, text: bytes = b"", **fields: Any) -> RecordRun:
    records = [
        MessageRecord("T", 3, body, text, queue_offset=number, physical_offset=number * 1_000)
        for number, body in enumerate(bodies)
    ]
    data = b"".join(encode_record(record._replace(**fields), True) for record in records)
    [run] = cut_runs(data, 0, None)
    return run


def rows(names: list[str], run: RecordRun, **options: Any) -> list[dict[str, Any]]:
    columns = tuple(column_of(name) for name in names)
    batch = BatchMaker(columns, **options).batch(run, QUEUE)
    assert batch.schema == arrow_schema(columns)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_where_each_row_is_from() -> None:
    found = rows(["value", "topic", "broker", "partition", "offset"], run_of(b"a", b"b"))
    assert found == [
        {"value": b"a", "topic": "T", "broker": "broker-a", "partition": 3, "offset": 0},
        {"value": b"b", "topic": "T", "broker": "broker-a", "partition": 3, "offset": 1},
    ]


def test_compressed_bodies_are_plain() -> None:
    found = rows(["value"], run_of(zlib.compress(b"long" * 50), sys_flag=COMPRESSED))
    assert found == [{"value": b"long" * 50}]


def test_several_bodies_have_a_limit_when_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few megabytes of records may be gigabytes, more than an Arrow array can have."""
    monkeypatch.setattr(message_batches, "PLAIN_SIZE_MAX", 1_000)
    body = zlib.compress(bytes(600))
    with pytest.raises(message_batches.BodiesTooLarge, match="2 bodies have more than 1000 bytes"):
        rows(["value"], run_of(body, body, sys_flag=COMPRESSED))
    large = zlib.compress(bytes(2_000))
    assert rows(["value"], run_of(large, sys_flag=COMPRESSED)) == [{"value": bytes(2_000)}]


def test_a_body_that_cannot_be_decompressed_names_its_place() -> None:
    run = run_of(b"not zlib", sys_flag=COMPRESSED, text=b"TAGS\x01x\x02")
    for more in ([], ["offset"]):
        for tags in ((), ("x",)):
            with pytest.raises(errors.DecompressionFailed) as raised:
                rows(["value", *more], run, tags=tags)
            assert "at offset 0 of queue 3 of T on broker-a: zlib: " in str(raised.value)


def mixed_run() -> RecordRun:
    """Plain, damaged, good and too large bodies, from offset 5."""
    bodies = [b"plain", b"damaged", zlib.compress(b"good"), zlib.compress(bytes(2_000))]
    records = [
        MessageRecord("T", 3, body, b"TAGS\x01%d\x02" % number, queue_offset=5 + number)
        for number, body in enumerate(bodies)
    ]
    flags = [0, COMPRESSED, COMPRESSED, COMPRESSED]
    pairs = zip(records, flags, strict=True)
    data = b"".join(encode_record(record._replace(sys_flag=flag), True) for record, flag in pairs)
    [run] = cut_runs(data, 0, None)
    return run


def test_bodies_that_cannot_be_decompressed_are_kept_on_request() -> None:
    columns = (column_of("value"), column_of("tags"))
    maker = BatchMaker(columns, body_size_max=1_000, keeps_unreadable=True)
    batch = maker.batch(mixed_run(), QUEUE)
    assert batch.schema.names == ["value", "tags", UNREADABLE]
    values = batch.column(0).to_pylist()
    assert values == [b"plain", b"damaged", b"good", zlib.compress(bytes(2_000))]
    first, second, third, last = batch.column(2).to_pylist()
    assert (first, third) == (None, None)
    assert second.startswith("the body cannot be decompressed: zlib: ")
    assert "larger than 1000 bytes when decompressed" in last
    without = BatchMaker(columns, tags=("0", "2"), keeps_unreadable=True)
    assert without.batch(mixed_run(), QUEUE).schema == arrow_schema(columns)
    other = BatchMaker(columns, tags=("1",), keeps_unreadable=True).batch(mixed_run(), QUEUE)
    assert other.num_rows == 1 and other.column(2)[0].is_valid


def test_conditions_keep_the_reasons_of_their_rows() -> None:
    chosen = (column_of("value"),)
    conditions = (Predicate("offset", ">", 5), Predicate("tags", "<", "3"))
    for predicates, found in (
        (conditions, [b"damaged", b"good"]),
        ((*conditions[:1], Predicate("tags", "=", "2")), [b"good"]),
    ):
        maker = ConditionalRows(chosen, predicates, "default", keeps_unreadable=True)
        batch = maker.batch(mixed_run(), QUEUE)
        assert batch.column(0).to_pylist() == found
        assert batch.schema.names == ["value", UNREADABLE]
        assert [reason is not None for reason in batch.column(1).to_pylist()] == [
            value == b"damaged" for value in found
        ]


def test_a_missing_package_is_no_fault_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(compression, "import_module", absent)
    run = run_of(b"x", sys_flag=COMPRESSED | COMPRESSION_LZ4)
    with pytest.raises(errors.CodecMissing, match=r"offset 0 of queue 3 .*pip install lz4"):
        rows(["value"], run, keeps_unreadable=True)


def test_rows_with_other_tags_are_left_out() -> None:
    run = run_of(b"a", text=b"TAGS\x01x\x02")
    assert len(rows(["value"], run, tags=("x", "y"))) == 1
    assert rows(["value"], run, tags=("y",)) == []


def test_properties_of_the_sender_only_unless_all_are_asked_for() -> None:
    run = run_of(b"a", text=b"mine\x01v\x02UNIQ_KEY\x01id\x02")
    assert rows(["properties"], run)[0]["properties"] == [("mine", "v")]
    everything = rows(["properties"], run, include_system_properties=True)[0]["properties"]
    assert {"mine", "UNIQ_KEY"} <= {name for name, _ in everything}
