"""`spark.readStream`: Spark's interface. The only module that depends on the Spark release.

Spark 4.2 and later call `latestOffset(start, limit)`. Spark 4.0 and 4.1 call `latestOffset()`
without limits and without the end of the last batch, which this object remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from broker_core import errors
from pyspark_rmq import connections
from pyspark_rmq.connections import Connected
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.read_columns import ReadColumn
from pyspark_rmq.short_errors import short_errors, short_row_errors
from pyspark_rmq.source.offsets.offset_planning import plan_tasks, ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.rows.repeat_survey import deduplicated
from pyspark_rmq.source.stream_session import Limits, StreamSession
from pyspark_rmq.tcp_quickack import QuickAckInput

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # 4.0 and 4.1
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Missing in this release."""


_log = logging.getLogger(__name__)


class RmqStreamReader(
    QuickAckInput,
    DataSourceStreamReader,  # type: ignore[misc]
    SupportsTriggerAvailableNow,  # type: ignore[misc]
):
    """One object on the driver for the life of a query; tasks get copies of another one."""

    def __init__(self, options: SourceOptions, columns: Sequence[ReadColumn]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._session: StreamSession | None = None
        self._last: dict[str, Any] | None = None
        # Brokers of a batch that Spark repeats before it asks for the next one.
        self._repeated: set[str] = set()
        self._has_looked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_last": None}

    # Positions

    @short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        initial: StreamOffset = self._call(self._asked().initial())
        return initial.to_json()

    @short_errors
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """The end of the next batch; `start`, unchanged, when there is none."""
        if start is None:
            # Before 4.2. Wait for new messages once a position is known.
            may_wait = self._last is not None
            start = self._last or self.initialOffset()
        else:
            may_wait = True
        begin = StreamOffset.from_json(start)
        if not self._has_looked:
            self._has_looked = True
            self._asked().note_repeated(self._repeated)
        end: StreamOffset = self._call(
            self._asked().latest(begin, self._limits(limit), may_wait=may_wait)
        )
        if end is not begin and self._options.deduplicates:
            end = deduplicated(begin, end, self._options, self._connected())
            self._asked().note_position(end)
        self._last = start if end is begin else end.to_json()
        return self._last

    def getDefaultReadLimit(self) -> Any:
        """The limit that Spark passes to `latestOffset`, unless the trigger sets another one."""
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Read everything that is stored now, in as many batches as the limits require."""
        self._asked().fix_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The lag for progress reports, as of the last look; asks no broker."""
        return self._session.backlog() if self._session is not None else None

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch. Depends only on arguments and options."""
        self._last = end
        begin, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        ranges = ranges_between(begin, until) if start != end else []
        if not self._has_looked:
            self._repeated.update(part.broker_name for part in ranges)
        tasks = plan_tasks(
            ranges,
            until.row_sizes,
            tasks_min=self._options.partitions_min,
            rows_max=self._options.rows_per_partition_max,
        )
        stores = dict(until.stores)
        return [InputPartition(Task.of(ranges, stores, until.repeats)) for ranges in tasks]

    @short_row_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        return read_task(partition.value, self._options, self._columns)

    @short_errors
    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done."""
        self._call(self._asked().commit(StreamOffset.from_json(end)))

    def stop(self) -> None:
        """Not every Spark release calls it, so nothing depends on it."""
        if self._session is not None:
            self._call(self._session.close())
            self._session = None
        connections.close_connections()

    # Inside

    def _asked(self) -> StreamSession:
        if self._session is None:
            self._session = StreamSession(self._connected().client, self._options)
            if not HAS_LIMITS and self._given() != Limits():
                _log.warning(
                    "this Spark knows no limits for a batch: maxOffsetsPerTrigger,"
                    " maxBytesPerTrigger and minOffsetsPerTrigger have no effect before Spark 4.2"
                )
        return self._session

    def _connected(self) -> Connected:
        return connections.connect(self._options.connection)

    def _call(self, coroutine: Any) -> Any:
        return self._connected().call(coroutine)

    def _limits(self, limit: Any) -> Limits:
        if not HAS_LIMITS or limit is None:
            return Limits()
        given = self._given()
        if isinstance(limit, ReadAllAvailable) and (given.rows, given.size) != (None, None):
            # Trigger.Once: everything, whatever the options say.
            return Limits()
        return given

    def _given(self) -> Limits:
        options = self._options
        return Limits(
            options.rows_per_trigger_max,
            options.bytes_per_trigger_max,
            options.rows_per_trigger_min,
        )


class RefusedStreamReader(RmqStreamReader):
    """Raises `error` when Spark first uses it.

    Spark hides an error of `DataSource.streamReader` under one of its own, about a name of its
    code. Errors of a reader are shown alone.
    """

    def __init__(self, error: errors.RmqError) -> None:
        self._error = error
        self._session = None

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> Any:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error
