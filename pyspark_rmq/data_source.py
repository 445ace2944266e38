"""The data source that Spark finds under the name `rmq`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from pyspark_rmq.columns import ChosenColumn, choose_columns, default_schema
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_reader import RmqBatchReader
from pyspark_rmq.source.stream_reader import RmqStreamReader


class RmqDataSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("rmq")` and `spark.readStream.format("rmq")`."""

    @classmethod
    def name(cls) -> str:
        """What `.format` is given."""
        return "rmq"

    def schema(self) -> str:
        """The columns of a reader without `.schema(…)`."""
        options = SourceOptions.parse(self.options)
        return default_schema(options.column_names, options.include_properties)

    def reader(self, schema: Any) -> RmqBatchReader:
        """For `spark.read`."""
        options = SourceOptions.parse(self.options).for_batch()
        return RmqBatchReader(options, _chosen(schema, options))

    def streamReader(self, schema: Any) -> RmqStreamReader:
        """For `spark.readStream`."""
        options = SourceOptions.parse(self.options).for_stream()
        return RmqStreamReader(options, _chosen(schema, options))


def _chosen(schema: Any, options: SourceOptions) -> tuple[ChosenColumn, ...]:
    fields = ((f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields)
    return choose_columns(fields, options.column_names)


def registered_as(name: str) -> type[RmqDataSource]:
    """The same source under another name."""

    def other_name(cls: type) -> str:
        return name

    return type("RmqDataSource", (RmqDataSource,), {"name": classmethod(other_name)})
