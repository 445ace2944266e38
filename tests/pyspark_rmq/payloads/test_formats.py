"""Options of payloads, alone and together."""

from __future__ import annotations

import pytest

from broker_core import errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.sink.sink_options import SinkOptions


def parse(**given: str) -> PayloadOptions:
    texts = {"rmq.namesrv.addr": "h:1", "subscribe": "t", **given}
    return SourceOptions.parse(texts).payload


def test_defaults_and_values() -> None:
    assert parse() == PayloadOptions("binary", False, "fail", "UTC")
    assert not parse().is_typed
    found = parse(
        valueFormat="JSON", flattenValue="true", badRecords="Skip", timeZone="Europe/Berlin"
    )
    assert found == PayloadOptions("json", True, "skip", "Europe/Berlin")
    dead = parse(valueFormat="json", badRecords="deadletter", deadLetterTopic="bad")
    assert dead == PayloadOptions("json", False, "deadLetter", "UTC", "bad")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"badRecords": "skip"}, "badRecords is for typed payloads"),
        ({"flattenValue": "true"}, "flattenValue is for typed payloads"),
        ({"valueFormat": "string", "flattenValue": "true"}, "a string has none"),
        ({"valueFormat": "json", "badRecords": "ignore"}, "fail or null or skip or deadLetter"),
        ({"valueFormat": "json", "badRecords": "deadLetter"}, "go together: give both"),
        ({"valueFormat": "json", "deadLetterTopic": "bad"}, "go together: give both"),
        (
            {"valueFormat": "json", "badRecords": "deadLetter", "deadLetterTopic": "t"},
            "deadLetterTopic=t is one of the topics that are read",
        ),
        ({"deadLetterTopic": "bad"}, "deadLetterTopic is for typed payloads"),
        ({"valueFormat": "xml"}, "binary or string or json or msgpack or avro or protobuf"),
        ({"keyFormat": "xml"}, "string or json"),
        ({"keyFormat": "avro"}, "keys of RocketMQ are texts, and cannot have the bytes"),
        ({"keyFormat": "json", "flattenValue": "true"}, "flattenValue is for typed payloads"),
        ({"valueFormat": "json", "timeZone": "Mars/North"}, "a time zone such as UTC"),
        ({"valueFormat": "json", "timeZone": "../etc"}, "a time zone such as UTC"),
        ({"valueFormat": "json", "mode": "strict"}, "PERMISSIVE or DROPMALFORMED or FAILFAST"),
        (
            {"valueFormat": "json", "mode": "failfast", "badRecords": "skip"},
            "mode and badRecords exclude each other: mode=FAILFAST is like badRecords=fail",
        ),
        ({"mode": "failfast"}, "mode is for typed payloads"),
        ({"valueFormat": "msgpack", "dateFormat": "yyyy"}, "dateFormat is for times that are"),
        ({"valueFormat": "json", "timestampFormat": "YYYY"}, "it has YYYY, which is not supported"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(errors.RmqError, match=text):
        parse(**given)


def test_an_assigned_dead_letter_topic_is_refused() -> None:
    given = {"valueFormat": "json", "badRecords": "deadLetter", "deadLetterTopic": "t"}
    texts = {"rmq.namesrv.addr": "h:1", "assign": '{"t": [0]}', **given}
    with pytest.raises(errors.InvalidArgument, match="t is one of the topics that are read"):
        SourceOptions.parse(texts)


def test_modes_of_spark() -> None:
    for mode, policy, keeps in (
        ("permissive", "null", True), ("dropMalformed", "skip", False), ("FAILFAST", "fail", False),
    ):  # fmt: skip
        found = parse(valueFormat="json", mode=mode)
        assert (found.bad_records, found.keeps_fields) == (policy, keeps)


def test_patterns() -> None:
    found = parse(valueFormat="json", timestampFormat="dd.MM.yyyy", timestampNTZFormat="yyyy")
    assert found.patterns == ("dd.MM.yyyy", "yyyy", "")
    assert found.times.date("1970-01-02") == 1
    assert parse(keyFormat="json", dateFormat="M/yyyy").times.date("2/1970") == 31


def test_changes_are_formats_of_the_source() -> None:
    assert parse(valueFormat="Canal-JSON").checks_columns
    with pytest.raises(errors.InvalidConfig, match="only sources read canal-json"):
        SinkOptions.parse({"rmq.namesrv.addr": "h:1", "topic": "t", "valueFormat": "canal-json"})


def test_key_formats() -> None:
    assert parse().key_format == "string"
    found = parse(keyFormat="JSON", badRecords="null", timeZone="Europe/Berlin")
    assert (found.key_format, found.is_typed, found.bad_records) == ("json", False, "null")
    with pytest.raises(errors.InvalidArgument, match="keyFormat=json needs a schema"):
        _ = found.default_kind


def test_a_format_with_fields_needs_a_schema() -> None:
    assert parse(valueFormat="string").default_kind == "string"
    with pytest.raises(errors.InvalidArgument, match=r"needs a schema .*spark\.read also takes"):
        _ = parse(valueFormat="json").default_kind
    with pytest.raises(errors.InvalidArgument, match=r"STRUCT<op: STRING, after: STRUCT<.*>\"\)$"):
        _ = parse(valueFormat="canal-json").default_kind
