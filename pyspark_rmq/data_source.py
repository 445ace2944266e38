"""The data source that Spark finds under the name `rmq`.

Spark starts several Python processes for a query: to find the source, to create it, to plan reads,
to plan writes, to commit. Readers and writers are imported where they are made, so that each
process loads only what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from broker_core import errors
from pyspark_rmq.columns import default_schema
from pyspark_rmq.frozen_heap import freeze_once, freeze_worker
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.short_errors import short_errors

if TYPE_CHECKING:
    from pyspark_rmq.payloads.read_columns import ReadColumn, SchemaField
    from pyspark_rmq.sink.batch_writer import RmqBatchWriter
    from pyspark_rmq.sink.sink_options import SinkOptions
    from pyspark_rmq.sink.stream_writer import RmqStreamWriter
    from pyspark_rmq.sink.task.sink_columns import SinkColumns
    from pyspark_rmq.source.batch_reader import RmqBatchReader, RmqDescribeReader
    from pyspark_rmq.source.stream_reader import RmqStreamReader


class RmqDataSource(DataSource):  # type: ignore[misc]
    """`.format("rmq")` of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Constructed for every `load`, in a reused worker.
        freeze_worker()

    @classmethod
    def name(cls) -> str:
        """The name for `.format`."""
        return "rmq"

    @short_errors
    def schema(self) -> str:
        """The columns of a reader without `.schema(…)`."""
        options = SourceOptions.parse(self.options)
        if options.describe:
            from pyspark_rmq.source.description import description_schema

            return description_schema(options.describe)
        if options.payload.finds_schema:
            from pyspark_rmq.source.found_schema import found_schema

            return found_schema(options)
        value_kind = options.payload.default_kind
        return default_schema(options.column_names, options.include_properties, value_kind)

    @short_errors
    def reader(self, schema: Any) -> RmqBatchReader | RmqDescribeReader:
        """For `spark.read`."""
        from pyspark_rmq.source.batch_reader import (
            RmqBatchReader,
            RmqDescribeReader,
            RmqPushdownReader,
        )

        # Called before every read, in a reused worker.
        freeze_once()
        options = SourceOptions.parse(self.options).for_batch()
        if options.describe:
            from pyspark_rmq.source.description import described_columns

            names = [field.name for field in schema.fields]
            described_columns(options.describe, names)
            return RmqDescribeReader(options, names)
        kind = RmqPushdownReader if options.pushes_filters else RmqBatchReader
        return kind(options, _chosen(schema, options))

    def streamReader(self, schema: Any) -> RmqStreamReader:
        """For `spark.readStream`. Wrong options are an error of the result's methods."""
        from pyspark_rmq.source.stream_reader import RefusedStreamReader, RmqStreamReader

        try:
            options = SourceOptions.parse(self.options).for_stream()
            return RmqStreamReader(options, _chosen(schema, options))
        except errors.RmqError as error:
            return RefusedStreamReader(error.with_traceback(None))

    @short_errors
    def writer(self, schema: Any, overwrite: bool) -> RmqBatchWriter:
        """For `df.write`."""
        from pyspark_rmq.sink.batch_writer import RmqBatchWriter
        from pyspark_rmq.sink.guarantee import decide_guarantee
        from pyspark_rmq.sink.sink_options import SinkOptions
        from pyspark_rmq.sink.sink_topics import require_topics

        if overwrite:
            raise errors.InvalidArgument(
                errors.explained('a topic cannot be overwritten: use mode("append")', "output-mode")
            )
        options = SinkOptions.parse(self.options).for_batch()
        columns = _written(schema, options)
        require_topics(options)
        return RmqBatchWriter(options, columns, decide_guarantee(options, columns))

    @short_errors
    def streamWriter(self, schema: Any, overwrite: bool) -> RmqStreamWriter:
        """For `df.writeStream`."""
        from pyspark_rmq.sink.guarantee import decide_guarantee
        from pyspark_rmq.sink.sink_options import SinkOptions
        from pyspark_rmq.sink.sink_topics import require_topics

        if overwrite:
            raise errors.InvalidArgument(
                errors.explained(
                    "outputMode complete would replace what a topic has, and a topic only grows:"
                    " use append, or write each batch with foreachBatch and"
                    ' df.write.format("rmq").option("sinkId", …), which works with complete and'
                    " update",
                    "output-mode",
                )
            )
        # Called before every batch and every commit, in reused workers.
        freeze_once()
        options = SinkOptions.parse(self.options).for_stream()
        columns = _written(schema, options)
        require_topics(options)
        guarantee = decide_guarantee(options, columns)
        return self.writer_type()(options, columns, guarantee, schema)

    @classmethod
    def writer_type(cls) -> type[RmqStreamWriter]:
        """The class of `streamWriter`'s result."""
        from pyspark_rmq.sink.stream_writer import RmqStreamWriter

        return RmqStreamWriter


def _chosen(schema: Any, options: SourceOptions) -> tuple[ReadColumn, ...]:
    from pyspark_rmq.payloads.read_columns import choose_read_columns

    columns = choose_read_columns(_fields(schema), options.payload, options.column_names)
    if options.payload.checks_columns:
        from pyspark_rmq.payloads.typed_rows import decoder_of

        # Only to check it, before there are tasks.
        decoder_of(columns, options.payload)
    return columns


def _written(schema: Any, options: SinkOptions) -> SinkColumns:
    from pyspark_rmq.payloads import formats
    from pyspark_rmq.sink.task.payload_columns import find_payload_columns
    from pyspark_rmq.sink.task.sink_columns import find_columns

    if options.key_format != formats.STRING:
        from pyspark_rmq.payloads.read_columns import refuse_keys
        from pyspark_rmq.payloads.spark_types import writable_type

        for field in _fields(schema):
            if field.name.lower() == "key" and not isinstance(field.json_type, str):
                kind = writable_type(field.json_type, field.name)
                refuse_keys(field.name, kind, formats.JSON)
    if options.value_format in formats.WITH_FIELDS:
        return find_payload_columns(_fields(schema), options)
    return find_columns(((f.name, f.dataType.simpleString()) for f in schema.fields), options)


def _fields(schema: Any) -> list[SchemaField]:
    from pyspark_rmq.payloads.read_columns import SchemaField

    return [
        SchemaField(f.name, f.dataType.simpleString(), f.nullable, f.dataType.jsonValue())
        for f in schema.fields
    ]


def registered_as(name: str) -> type[RmqDataSource]:
    """The same source under another name."""

    def other_name(cls: type) -> str:
        return name

    return type("RmqDataSource", (RmqDataSource,), {"name": classmethod(other_name)})
