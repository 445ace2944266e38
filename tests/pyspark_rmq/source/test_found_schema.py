"""Readers without a schema: which messages are sampled, and the columns that are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.found_schema import found_schema, sample_bodies, sample_ranges
from pyspark_rmq.source.offsets.offset_planning import QueueRange

MESSAGE = "topic string, tags string, broker string, partition int, offset bigint"


def test_samples_are_bounded_and_cover_both_ends() -> None:
    ranges = [QueueRange("t", "b", 0, 100, 1_100), QueueRange("t", "b", 1, 5, 8)]
    parts = sample_ranges(ranges, 10)
    assert [(part.queue_id, part.start, part.until) for part in parts] == [
        (1, 5, 7), (1, 7, 8), (0, 100, 104), (0, 1_097, 1_100),
    ]  # fmt: skip
    assert sum(part.rows for part in sample_ranges(ranges, 10_000)) == 1_003
    assert [part.rows for part in sample_ranges(ranges * 5, 1)] == [1]


@pytest.fixture
def parse(broker: EmbeddedBroker) -> Callable[..., SourceOptions]:
    def parsed(**given: str) -> SourceOptions:
        return SourceOptions.parse({**broker.options, **given})

    return parsed


def test_a_sample_is_the_type(
    parse: Callable[..., SourceOptions], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    bodies = [json.dumps({"id": f"o{n}", "n": n}) for n in range(50)]
    broker.produce(topic, [*bodies, '{"n": 0.5, "late": [1]}', "bad"])
    given = {"subscribe": topic, "valueFormat": "json", "inferSchema": "true"}
    kind = "struct<`id`: string, `late`: array<long>, `n`: double>"
    assert f"value {kind}," in found_schema(parse(**given, inferSchemaSampleRows="20"))
    flat = found_schema(parse(**given, flattenValue="true"))
    assert flat.startswith(f"key string, {MESSAGE}")
    assert flat.endswith(", `id` string, `late` array<long>, `n` double")
    assert "value" not in flat
    kafka = found_schema(parse(**given, columnNames="kafka"))
    assert kafka.startswith(f"key binary, value {kind}, topic string")
    options = parse(**given, inferSchemaSampleRows="7").for_batch()
    assert len(list(sample_bodies(options))) == 7
    with pytest.raises(errors.InvalidArgument, match="there are no messages in the range"):
        found_schema(parse(**given, startingOffsets="latest"))


def test_a_field_of_the_name_of_a_column(
    parse: Callable[..., SourceOptions], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ['{"timestamp": 1}'])
    given = {"subscribe": topic, "valueFormat": "json", "inferSchema": "true"}
    assert "value struct<`timestamp`: long>" in found_schema(parse(**given))
    with pytest.raises(errors.InvalidArgument, match="has a field timestamp, and so has the messa"):
        found_schema(parse(**given, flattenValue="true"))


def test_formats_with_a_schema_need_no_sample(
    parse: Callable[..., SourceOptions], tmp_path: Path
) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    given = {"subscribe": "nothing", "valueFormat": "avro", "value.schema": schema}
    assert "value struct<`a`: integer>" in found_schema(parse(**given))
    array = {**given, "value.schema": '{"type": "array", "items": "int"}', "flattenValue": "true"}
    with pytest.raises(errors.InvalidArgument, match="the payload is array<integer>: leave it out"):
        found_schema(parse(**array))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"valueFormat": "avro", "value.schema": '"int"'}, "leave it out, because the schema of"),
        ({"valueFormat": "canal-json"}, "name the columns of the table for valueFormat=canal-json"),
        ({"valueFormat": "string"}, "valueFormat=string has no fields"),
        ({}, "valueFormat=binary has no fields"),
    ],
)
def test_formats_that_are_not_sampled(
    parse: Callable[..., SourceOptions], given: dict[str, str], text: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"inferSchema=true is for .*{text}"):
        parse(subscribe="t", inferSchema="true", **given)
    with pytest.raises(errors.InvalidArgument, match="inferSchemaSampleRows needs inferSchema"):
        parse(subscribe="t", valueFormat="json", inferSchemaSampleRows="5")


def test_a_stream_is_not_sampled(parse: Callable[..., SourceOptions]) -> None:
    options = parse(subscribe="t", valueFormat="json", inferSchema="true")
    with pytest.raises(errors.InvalidArgument, match=r"inferSchema=true is for spark\.read: later"):
        options.for_stream()
