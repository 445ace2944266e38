"""Changes as Arrow values: types of columns, several rows of a message, and bad ones."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.bad_records import Decoded
from pyspark_rmq.payloads.changes.decoder import ChangeDecoder
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP

ROW = pa.struct(
    [
        ("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("yes", pa.bool_()),
        ("f", pa.float64()), ("at", TIMESTAMP), ("day", pa.date32()), ("raw", pa.binary()),
        ("name", pa.string()),
    ]
)  # fmt: skip
KIND = pa.struct([("op", pa.string()), ("before", ROW), ("after", ROW), ("ts", TIMESTAMP)])
UTC = datetime.timezone.utc


def decode(value_format: str, *messages: Any, keeps_fields: bool = False) -> Decoded:
    bodies = [json.dumps(message).encode() for message in messages]
    decoder = ChangeDecoder(KIND, value_format, TimeTexts(), keeps_fields)
    return decoder.decode(pa.array(bodies, pa.binary()))


CANAL = {
    "id": "7", "price": "9.50", "yes": "1", "f": "0.5", "at": "2024-05-31 12:00:00",
    "day": "2024-05-31", "raw": "\u00ff\u0000", "name": "é", "more": "x",
}  # fmt: skip
EXPECTED = {
    "id": 7, "price": decimal.Decimal("9.50"), "yes": True, "f": 0.5,
    "at": datetime.datetime(2024, 5, 31, 12, tzinfo=UTC), "day": datetime.date(2024, 5, 31),
    "raw": b"\xff\x00", "name": "é",
}  # fmt: skip


def test_tombstones_of_debezium_are_no_rows() -> None:
    deleted = json.dumps({"op": "d", "before": {"id": 1}, "after": None}).encode()
    tombstones = [b"", b" null\n", b'{"schema": null, "payload": null}']
    bodies = pa.array([deleted, *tombstones, deleted, b"nul"], pa.binary())
    decoded = ChangeDecoder(KIND, "debezium-json", TimeTexts()).decode(bodies)
    assert decoded.places.to_pylist() == [0, 4, 5] and [bad.row for bad in decoded.bad] == [2]
    only = ChangeDecoder(KIND, "debezium-json", TimeTexts()).decode(bodies.slice(1, 3))
    assert len(only.values) == 0 and not only.bad
    canal = ChangeDecoder(KIND, "canal-json", TimeTexts()).decode(bodies.slice(1, 2))
    assert [bad.row for bad in canal.bad] == [0, 1]


def test_canal_has_texts() -> None:
    messages = [
        {"type": "INSERT", "data": [CANAL, {**CANAL, "id": None}], "es": 1_717_156_800_000},
        {"type": "INSERT", "data": []},
        {"type": "DELETE", "data": [CANAL]},
    ]
    decoded = decode("canal-json", *messages)
    first, second, third = decoded.values.to_pylist()
    assert first == {"op": "c", "before": None, "after": EXPECTED, "ts": EXPECTED["at"]}
    assert second["after"]["id"] is None
    assert (third["op"], third["before"], third["after"]) == ("d", EXPECTED, None)
    assert decoded.places.to_pylist() == [0, 0, 2] and not decoded.bad


def test_debezium_has_days_and_refuses_numbers_for_times() -> None:
    row = {
        "id": 7, "price": "9.50", "yes": True, "f": 0.5, "at": "2024-05-31T12:00:00Z",
        "day": 19_874, "raw": "/wA=", "name": "é",
    }  # fmt: skip
    decoded = decode("debezium-json", {"op": "r", "after": row}, {"op": "c", "after": {"at": 5}})
    assert decoded.values.to_pylist() == [
        {"op": "r", "before": None, "after": EXPECTED, "ts": None}, None,
    ]  # fmt: skip
    [bad] = decoded.bad
    assert bad.row == 1 and bad.reason.startswith("value.after.at is 5, a number, and bodies of")


def test_a_bad_row_is_a_bad_message() -> None:
    message = {"type": "INSERT", "data": [CANAL, {**CANAL, "id": "x"}, CANAL]}
    decoded = decode("canal-json", message, {"type": "INSERT", "data": [CANAL]})
    assert [value and value["op"] for value in decoded.values.to_pylist()] == [None, "c"]
    assert decoded.places.to_pylist() == [0, 1]
    assert [(bad.row, bad.reason) for bad in decoded.bad] == [
        (0, "value.after.id is x, which is not BIGINT")
    ]


def test_permissive_keeps_fields() -> None:
    message = {"type": "INSERT", "data": [{**CANAL, "id": "x"}]}
    decoded = decode("canal-json", message, "nothing", keeps_fields=True)
    first, second = decoded.values.to_pylist()
    assert first["after"] == {**EXPECTED, "id": None}
    assert second == dict.fromkeys(("op", "before", "after", "ts"))
    assert [bad.row for bad in decoded.bad] == [0, 1]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.struct([("id", pa.int64())]), "has no field id. It has: op, before, after, ts"),
        (pa.struct([("op", pa.int32())]), "field op of valueFormat=canal-json is STRING, not INT"),
        (pa.list_(pa.int32()), "gives a STRUCT with the fields op, before"),
    ],
)
def test_columns_that_changes_lack(kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        ChangeDecoder(kind, "canal-json", TimeTexts())
