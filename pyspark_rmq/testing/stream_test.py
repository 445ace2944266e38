"""A small language for tests of streaming queries: add, process, check, restart, kill, advance.

def test_invoices(rmq_stream):
    stream = rmq_stream(lambda rows: rows.selectExpr("upper(cast(value AS STRING)) AS value"))
    stream.add("a", "b").process().check("A", "B")
    stream.restart().add("c").process().check("C")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_core import EmbeddedBroker, Topic
from pyspark_rmq.testing.query_wait import TIMEOUT_S, NotProcessed, processed

Transform = Callable[[Any], Any]


class StreamTest:
    """One query over one topic; each step returns the test, so that steps can be chained.

    `transform` gets the rows of the source and returns the frame whose rows are checked. `options`
    are those of the source.
    """

    def __init__(
        self,
        spark: Any,
        broker: EmbeddedBroker,
        topic: Topic,
        transform: Transform,
        checkpoint: str,
        *,
        options: Mapping[str, str] | None = None,
        output_mode: str = "append",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._spark = spark
        self._broker = broker
        self.topic = topic
        """What the query reads."""
        self._transform = transform
        self._checkpoint = checkpoint
        self._options = dict(options or {})
        self._output_mode = output_mode
        self._timeout_s = timeout_s
        self._batches: dict[int, list[Any]] = {}
        self._checked = 0
        self._schema: Any = None
        self.query: Any = None
        """The running query; None before the first step that needs it."""

    # Steps

    def add(self, *messages: Any, **fields: Any) -> StreamTest:
        """Send messages; one frame sends its rows. `fields` are those of `produce`."""
        __tracebackhide__ = True
        is_frame = len(messages) == 1 and hasattr(messages[0], "columns")
        self.topic.produce(messages[0] if is_frame else list(messages), **fields)
        return self

    def process(self, until: Any = None) -> StreamTest:
        """Start the query if it does not run, and wait until it has processed what was added.

        `until` as of `processed`; without it everything that is in the topic.
        """
        __tracebackhide__ = True
        target = self.topic if until is None else until
        processed(self._started(), target, timeout_s=self._timeout_s)
        return self

    def check(self, *rows: Any) -> StreamTest:
        """Compare the rows since the last check with `rows`, in any order.

        A row is a tuple, a dictionary or, with one column, a plain value. One DataFrame of Spark
        stands for its rows.
        """
        # pytest then shows the line of the test, not this file.
        __tracebackhide__ = True
        from chispa import assert_df_equality
        from chispa.dataframe_comparer import DataFramesNotEqualError
        from chispa.schema_comparer import SchemasNotEqualError

        found = self.rows[self._checked :]
        self._checked += len(found)
        if self._schema is None:
            if not rows:
                return self
            raise AssertionError(
                f"the query has returned no rows yet, not {rows!r:.200}: process() comes before"
                " check()"
            )
        actual = self._spark.createDataFrame(found, self._schema)
        if len(rows) == 1 and hasattr(rows[0], "schema"):
            expected = rows[0]
        else:
            expected = self._frame_of(rows)
        try:
            assert_df_equality(
                actual,
                expected,
                ignore_row_order=True,
                ignore_nullable=True,
                allow_nan_equality=True,
            )
        except (DataFramesNotEqualError, SchemasNotEqualError) as error:
            text = f"df1 (or schema1) is what the query returned, df2 what was expected:{error}"
            raise type(error)(text) from None
        return self

    def restart(self) -> StreamTest:
        """Stop the query; the next step starts it again from its checkpoint."""
        self.stop()
        self._started()
        return self

    def kill(self) -> StreamTest:
        """Kill the broker as a crash would, and start it again on the same ports and store."""
        self._broker.kill()
        self._broker.start()
        return self

    def advance(self, time: float | timedelta) -> StreamTest:
        """Move the broker's clock forward, in seconds: delayed messages and retries become due.

        They are in the topic when this returns. Spark's clock is not moved.
        """
        seconds = time.total_seconds() if isinstance(time, timedelta) else time
        self._broker.advance_clock(seconds)
        return self

    def expect_failure(self, pattern: str = "") -> StreamTest:
        """Wait until the query fails with a text that contains the regular expression."""
        __tracebackhide__ = True
        from pyspark.errors import PySparkException

        query = self._started()
        try:
            ended = query.awaitTermination(self._timeout_s)
        except PySparkException as error:
            if re.search(pattern, str(error)) is None:
                raise error.with_traceback(None) from None
            self.query = None
            return self
        text = "ended without a failure" if ended else f"still runs after {self._timeout_s:g} s"
        raise NotProcessed(f"the query {text}")

    def stop(self) -> StreamTest:
        """Stop the query, if it runs."""
        query, self.query = self.query, None
        if query is not None:
            query.stop()
        return self

    # Results

    @property
    def rows(self) -> list[Any]:
        """All rows that the query returned; those of a repeated batch count once."""
        return [row for batch in sorted(self._batches) for row in self._batches[batch]]

    # Inside

    def _started(self) -> Any:
        __tracebackhide__ = True
        if self.query is None:
            reader = self._spark.readStream.format("rmq").options(**self._broker.options)
            reader = reader.option("subscribe", self.topic.name)
            reader = reader.option("startingOffsets", "earliest").options(**self._options)
            frame = self._transform(reader.load())
            self._schema = frame.schema
            self.query = (
                frame.writeStream.foreachBatch(self._take)
                .option("checkpointLocation", self._checkpoint)
                .outputMode(self._output_mode)
                .start()
            )
        return self.query

    def _take(self, frame: Any, batch_id: int) -> None:
        self._batches[batch_id] = frame.collect()

    def _frame_of(self, rows: Sequence[Any]) -> Any:
        """Raises `AssertionError` for rows that the query's columns cannot hold."""
        __tracebackhide__ = True
        from pyspark.errors import PySparkTypeError, PySparkValueError

        try:
            return self._spark.createDataFrame([self._row(row) for row in rows], self._schema)
        except (PySparkTypeError, PySparkValueError) as error:
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in self._schema)
            raise AssertionError(
                f"{rows!r:.200} cannot be rows of the query, whose columns are {columns}: {error}"
            ) from None

    def _row(self, row: Any) -> Any:
        __tracebackhide__ = True
        if isinstance(row, Mapping):
            if row.keys() != set(self._schema.names):
                raise AssertionError(
                    f"the row {row!r:.200} does not have the columns of the query:"
                    f" {', '.join(self._schema.names)}"
                )
            return tuple(row[name] for name in self._schema.names)
        return row if isinstance(row, tuple) else (row,)
