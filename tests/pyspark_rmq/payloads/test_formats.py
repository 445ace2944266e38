"""Options of payloads, alone and together."""

from __future__ import annotations

import pytest

from broker_core import errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.formats import PayloadOptions


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
    ],
)
def test_options_that_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(errors.RmqError, match=text):
        parse(**given)


def test_key_formats() -> None:
    assert parse().key_format == "string"
    found = parse(keyFormat="JSON", badRecords="null", timeZone="Europe/Berlin")
    assert (found.key_format, found.is_typed, found.bad_records) == ("json", False, "null")
    with pytest.raises(errors.InvalidArgument, match="keyFormat=json needs a schema"):
        _ = found.default_kind


def test_a_format_with_fields_needs_a_schema() -> None:
    assert parse(valueFormat="string").default_kind == "string"
    with pytest.raises(errors.InvalidArgument, match="needs a schema"):
        _ = parse(valueFormat="json").default_kind
