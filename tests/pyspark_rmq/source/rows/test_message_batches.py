"""Records as Arrow batches, without a broker."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from broker_core import MessageQueue, errors
from broker_core.client.pull.record_run import RecordRun, cut_runs
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord, encode_record
from pyspark_rmq.columns import column_of
from pyspark_rmq.source.rows import message_batches
from pyspark_rmq.source.rows.message_batches import BatchMaker, arrow_schema

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
    with pytest.raises(errors.RmqError, match="broker-a"):
        rows(["value"], run_of(b"not zlib", sys_flag=COMPRESSED))


def test_rows_with_other_tags_are_left_out() -> None:
    run = run_of(b"a", text=b"TAGS\x01x\x02")
    assert len(rows(["value"], run, tags=("x", "y"))) == 1
    assert rows(["value"], run, tags=("y",)) == []


def test_properties_of_the_sender_only_unless_all_are_asked_for() -> None:
    run = run_of(b"a", text=b"mine\x01v\x02UNIQ_KEY\x01id\x02")
    assert rows(["properties"], run)[0]["properties"] == [("mine", "v")]
    everything = rows(["properties"], run, include_system_properties=True)[0]["properties"]
    assert {"mine", "UNIQ_KEY"} <= {name for name, _ in everything}
