"""Columns: the default ones, those of a user's schema, and the old connector's names."""

from __future__ import annotations

import pytest

from broker_core import errors
from pyspark_rmq.columns import (
    COLUMNS,
    KAFKA,
    ROCKETMQ_SPARK,
    choose_columns,
    default_schema,
    plain_name,
)


def test_default_schema() -> None:
    assert default_schema() == (
        "key string, value binary, topic string, tags string, broker string, partition int,"
        " offset bigint, timestamp timestamp, bornTimestamp timestamp, msgId string,"
        " reconsumeTimes int"
    )
    assert default_schema(include_properties=True).endswith(", properties map<string,string>")


def test_names_of_the_old_connector() -> None:
    schema = default_schema(ROCKETMQ_SPARK)
    for name in ("body binary", "brokerName string", "queueId int", "queueOffset bigint",
                 "storeTimestamp timestamp", "topic string"):  # fmt: skip
        assert name in schema
    [chosen] = choose_columns([("body", "binary", True)], ROCKETMQ_SPARK)
    assert (chosen.output_name, chosen.name) == ("body", "value")
    with pytest.raises(errors.InvalidArgument):
        choose_columns([("value", "binary", True)], ROCKETMQ_SPARK)


def test_names_and_types_of_kafka() -> None:
    """As Spark's Kafka source has them; `tests/spark/test_kafka_job.py` compares."""
    assert default_schema(KAFKA) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
        " timestampType int"
    )
    headers = "array<struct<key:string,value:binary>>"
    assert default_schema(KAFKA, include_properties=True).endswith(f", headers {headers}")
    chosen = choose_columns([("Key", "binary", True), ("headers", headers, True)], KAFKA)
    assert [(c.output_name, c.name) for c in chosen] == [
        ("Key", "keyBytes"),
        ("headers", "headers"),
    ]
    assert plain_name("key", KAFKA) == "key"
    with pytest.raises(errors.InvalidArgument, match="key is binary, not string"):
        choose_columns([("key", "string", True)], KAFKA)
    with pytest.raises(errors.InvalidArgument, match="no column 'headers'"):
        choose_columns([("headers", headers, True)])


def test_a_schema_chooses_in_its_own_order_and_case() -> None:
    chosen = choose_columns([("OFFSET", "bigint", True), ("value", "binary", False)])
    assert [c.name for c in chosen] == ["offset", "value"]
    assert [c.output_name for c in chosen] == ["OFFSET", "value"]
    assert [c.nullable for c in chosen] == [True, False]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("values", "binary", True)], "did you mean value"),
        ([("nothing", "binary", True)], "There are: key, value"),
        ([("value", "string", True)], "value is binary, not string"),
        ([("offset", "int", True)], "offset is bigint"),
        ([("key", "string", False)], "may be null"),
        ([], "no column"),
        ([("value", "binary", True), ("VALUE", "binary", True)], "twice"),
    ],
)
def test_other_schemas_are_refused(fields: list[tuple[str, str, bool]], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        choose_columns(fields)


def test_every_column_can_be_chosen() -> None:
    fields = [(c.name, c.kind, True) for c in COLUMNS]
    fields += [("properties", "map<string,string>", True), ("flag", "int", True)]
    assert len(choose_columns(fields)) == len(COLUMNS) + 2
