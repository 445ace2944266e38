"""The schema of a reader without `.schema(…)`: of its format, or of a sample of messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from broker_core import errors
from pyspark_rmq import connections
from pyspark_rmq.columns import column_of, default_schema, plain_name
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.inference.described import ddl_of, fields_of, quoted
from pyspark_rmq.payloads.inference.sampled_types import sampled_type
from pyspark_rmq.payloads.registry.client import needed_schema
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.source.batch_plan import batch_ranges
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.rows.range_reader import Task, read_task

# A sample ends earlier if its bodies are large.
_SAMPLE_SIZE_MAX: Final = 64 << 20


def found_schema(options: SourceOptions) -> str:
    """DDL text. Raises `InvalidArgument` if there is no schema to find."""
    kind = _value_type(options)
    if not options.payload.flattens:
        return default_schema(options.column_names, options.include_properties, ddl_of(kind))
    fields = fields_of(kind)
    if fields is None:
        raise errors.InvalidArgument(
            f"option flattenValue needs fields, and the payload is {ddl_of(kind):.80}: leave it out"
        )
    for name in fields:
        if plain_name(name, options.column_names) is not None:
            raise errors.InvalidArgument(
                f"the payload has a field {name}, and so has the message: leave flattenValue out,"
                " and read it as a field of the column value"
            )
    columns = [f"{quoted(name)} {ddl_of(inner)}" for name, inner in fields.items()]
    return default_schema(options.column_names, options.include_properties, fields=columns)


def _value_type(options: SourceOptions) -> Any:
    payload = options.payload
    if payload.value_format == formats.AVRO:
        from pyspark_rmq.payloads.avro.columns import avro_column

        return avro_column(_with_text(payload.schema))
    if payload.value_format == formats.PROTOBUF:
        from pyspark_rmq.payloads.protobuf.columns import protobuf_column

        return protobuf_column(payload.schema)
    return sampled_type(sample_bodies(options.for_batch()), payload.value_format)


def _with_text(given: SchemaOptions) -> SchemaOptions:
    """The schema of a registry, whose id is given."""
    registry = given.registry
    if not registry.url:
        return given
    if registry.schema_id is None:
        raise errors.InvalidArgument(
            "option value.schema.registry.url needs a schema of the columns: give .schema(…), or"
            " value.schema.registry.id, whose fields are read"
        )
    text = needed_schema(registry, registry.schema_id)
    return given._replace(texts=((registry.schema_id, text),))


def sample_bodies(options: SourceOptions) -> Iterator[bytes]:
    """Bodies from the beginning and the end of every queue's range, up to the number of rows."""
    connected = connections.connect(options.connection)
    ranges = connected.call(batch_ranges(connected.client, options))
    parts = sample_ranges(ranges, options.payload.sample_rows)
    plain = dataclasses.replace(options, payload=PayloadOptions(), deduplicates=False)
    size = 0
    columns = (column_of("value", options.column_names),)
    for batch in read_task(Task(tuple(parts), {}), plain, columns, skips_unreadable=True):
        for body in batch.column(0).to_pylist():
            yield body
            size += len(body)
            if size > _SAMPLE_SIZE_MAX:
                return


def sample_ranges(ranges: list[QueueRange], rows: int) -> list[QueueRange]:
    """Parts of ranges with at most `rows` messages, the same number of each queue if possible."""
    found: list[QueueRange] = []
    # Those with few messages first: the others take what they leave.
    waiting = sorted(ranges, key=lambda part: part.rows)
    for place, part in enumerate(waiting):
        share = min(part.rows, rows // (len(waiting) - place))
        rows -= share
        # The newest messages may have other fields than the oldest.
        last = share // 2
        first = share - last
        if first:
            found.append(part._replace(until=part.start + first))
        if last:
            found.append(part._replace(start=part.until - last))
    return found
