"""Rows of messages of Canal and Debezium."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.changes.envelopes import ENVELOPES, Millis
from pyspark_rmq.payloads.json_values import parse


def rows(value_format: str, message: Any) -> list[dict[str, Any]]:
    return ENVELOPES[value_format].rows(parse(json.dumps(message).encode()))


def test_debezium() -> None:
    change = {
        "before": None, "after": {"id": 1}, "op": "c", "ts_ms": 1_717_156_800_500,
        "source": {"db": "shop", "schema": "public", "table": "orders", "ts_ms": 5},
    }  # fmt: skip
    [row] = rows("debezium-json", change)
    assert (row["op"], row["before"], row["after"]) == ("c", None, {"id": "1"})
    assert (row["database"], row["schema"], row["table"]) == ("shop", "public", "orders")
    assert (row["ts"], row["ingestTs"]) == (Millis(5), Millis(1_717_156_800_500))
    assert rows("debezium-json", {"schema": {}, "payload": change}) == [row]


def test_canal() -> None:
    message = {
        "data": [{"id": "1", "n": "5"}, {"id": "2", "n": "6"}], "old": [{"n": "4"}, {"n": None}],
        "type": "UPDATE", "database": "shop", "table": "orders", "es": 5, "ts": 6, "isDdl": False,
        "sql": "", "pkNames": ["id"],
    }  # fmt: skip
    found = rows("canal-json", message)
    assert [row["before"] for row in found] == [{"id": "1", "n": "4"}, {"id": "2", "n": None}]
    assert [row["after"] for row in found] == message["data"]
    assert {(row["op"], row["ts"], row["type"]) for row in found} == {("u", Millis(5), "UPDATE")}
    inserted = rows("canal-json", {**message, "type": "INSERT", "old": None})
    assert [(row["op"], row["before"], row["after"]["id"]) for row in inserted] == [
        ("c", None, "1"), ("c", None, "2"),
    ]  # fmt: skip
    deleted = rows("canal-json", {**message, "type": "DELETE", "old": None})
    assert [(row["op"], row["before"]["id"], row["after"]) for row in deleted] == [
        ("d", "1", None), ("d", "2", None),
    ]  # fmt: skip
    ddl = {"data": None, "type": "ALTER", "isDdl": True, "sql": "alter table"}
    [row] = rows("canal-json", ddl)
    assert (row["op"], row["after"], row["sql"]) == ("ddl", None, "alter table")
    [row] = rows("canal-json", {"data": None, "type": "TIDB_WATERMARK", "isDdl": False})
    assert (row["op"], row["type"]) == ("other", "TIDB_WATERMARK")


@pytest.mark.parametrize(
    ("value_format", "message", "text"),
    [
        ("debezium-json", [], "the body is no object"),
        ("debezium-json", {"a": 1}, "op is None"),
        ("debezium-json", {"op": "x"}, "op is 'x'"),
        ("debezium-json", {"schema": {}, "payload": 5}, "payload is no object"),
        ("debezium-json", {"op": "c", "source": 5}, "source is no object"),
        ("debezium-json", {"op": "c", "ts_ms": "x"}, "ts_ms is 'x', not milliseconds"),
        ("canal-json", {"type": "INSERT"}, "no type, or no data"),
        ("canal-json", {"type": "INSERT", "data": {}}, "data is no array"),
        ("canal-json", {"type": "INSERT", "data": [5]}, "data is no object"),
        ("canal-json", {"type": "UPDATE", "data": [{}], "old": []}, "1 rows, 0 of them before"),
        ("canal-json", {"type": "INSERT", "data": [], "es": 1.5}, "es is '1.5'"),
    ],
)
def test_what_is_no_change(value_format: str, message: Any, text: str) -> None:
    with pytest.raises(Undecodable, match=text):
        rows(value_format, message)
