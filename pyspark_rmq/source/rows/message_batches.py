"""Runs of stored records as Arrow batches of the chosen columns.

Other columns are not decoded. Constants of a queue (topic, broker, partition) are made without
reading records. Bodies are decompressed here, with a size limit (S08).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import MessageQueue, column_names, decompress_body, errors, to_arrow
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads.bad_records import UNREADABLE, place_of
from pyspark_rmq.source.rows.property_map import (
    HEADERS_TYPE,
    MAP_TYPE,
    headers_of,
    property_maps,
)

BODY_SIZE_MAX: Final = 16 << 20
# Of the bodies of a batch, decompressed.
PLAIN_SIZE_MAX: Final = 256 << 20
_COMPRESSED: Final = 1

ARROW_TYPES: Final[Mapping[str, Any]] = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "broker": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "bornTimestamp": pa.timestamp("us", tz="UTC"),
    "msgId": pa.string(),
    "reconsumeTimes": pa.int32(),
    "properties": MAP_TYPE,
    "flag": pa.int32(),
    "offsetMsgId": pa.string(),
    # Under Kafka's names.
    "keyBytes": pa.binary(),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
# Kafka's number for times that the broker has set.
_LOG_APPEND_TIME: Final = 1
# What the codec must decode for a column.
_BITS: Final[Mapping[str, int]] = {
    "key": column_names.KEYS,
    "value": column_names.VALUE | column_names.SYS_FLAG,
    "tags": column_names.TAGS,
    "offset": column_names.QUEUE_OFFSET,
    "timestamp": column_names.STORE_TIMESTAMP,
    "bornTimestamp": column_names.BORN_TIMESTAMP,
    # Falls back to the broker's message id if the client set none.
    "msgId": column_names.UNIQ_KEY,
    "reconsumeTimes": column_names.RECONSUME_TIMES,
    "properties": column_names.PROPERTIES,
    "flag": column_names.FLAG,
    "offsetMsgId": column_names.MESSAGE_ID,
    "keyBytes": column_names.KEYS,
    "headers": column_names.PROPERTIES,
}
_CODEC_NAMES: Final[Mapping[str, str]] = {
    "key": "keys",
    "value": "value",
    "tags": "tags",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
    "bornTimestamp": "born_timestamp",
    "reconsumeTimes": "reconsume_times",
    "flag": "flag",
    "offsetMsgId": "message_id",
}


def arrow_schema(columns: Sequence[ChosenColumn]) -> Any:
    """The schema of the batches, which Spark compares with its own."""
    return pa.schema(
        [pa.field(c.output_name, ARROW_TYPES[c.name], nullable=c.nullable) for c in columns]
    )


class BodiesTooLarge(errors.RmqError):
    """The decompressed bodies of a run are too large for one batch."""


class Records(Protocol):
    """Consecutive records of a queue, from a file or the network."""

    @property
    def count(self) -> int:
        """Number of records."""

    def columns(self, queue: MessageQueue, wanted: int, verify: int = ..., /) -> dict[str, Any]:
        """Columns by `column_names`; raises `CorruptRecord`."""


class BatchMaker:
    """Makes batches of the same columns from runs of any queue."""

    def __init__(
        self,
        columns: Sequence[ChosenColumn],
        *,
        tags: Sequence[str] = (),
        include_system_properties: bool = False,
        body_size_max: int = BODY_SIZE_MAX,
        keeps_unreadable: bool = False,
    ) -> None:
        self.schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._tags = pa.array(list(tags), pa.string()) if tags else None
        self._include_system = include_system_properties
        self._body_size_max = body_size_max
        self._keeps_unreadable = keeps_unreadable
        self._wanted = column_names.MICROS
        for name in self._names:
            self._wanted |= _BITS.get(name, 0)
        if tags:
            self._wanted |= column_names.TAGS

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        """The rows of a run; fewer than its records if tags are filtered.

        With `keeps_unreadable` a body that cannot be decompressed is returned as it is stored, and
        the batch has a last column `UNREADABLE` with the reasons, null for other rows.
        Raises `CorruptRecord` for a record that fails its checks, `DecompressionFailed` for a body,
        and `BodiesTooLarge` for several that have to be read in smaller runs.
        """
        decoded = to_arrow(run.columns(queue, self._wanted), run.count)
        columns = {name: decoded.column(name) for name in decoded.schema.names}
        if "msgId" in self._names and columns["uniq_key"].null_count:
            ids = to_arrow(run.columns(queue, column_names.MESSAGE_ID, 0), run.count)
            columns["message_id"] = ids.column("message_id")
        has_packed = "value" in self._names and _packed_rows(columns).size > 0
        if has_packed and "queue_offset" not in columns:
            # Errors name it.
            offsets = to_arrow(run.columns(queue, column_names.QUEUE_OFFSET, 0), run.count)
            columns["queue_offset"] = offsets.column("queue_offset")
        count = run.count
        if self._tags is not None:
            # Brokers compare only hashes of tags, and bulk reads do not filter.
            wanted = pc.is_in(columns["tags"], value_set=self._tags)
            columns = {name: column.filter(wanted) for name, column in columns.items()}
            count = len(columns["tags"])
        reasons = self._unpack(columns, queue) if has_packed else {}
        arrays = [_MAKERS.get(name, _renamed(name))(self, columns, queue, count)
                  for name in self._names]  # fmt: skip
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if not reasons:
            return made
        texts = pa.array([reasons.get(row) for row in range(count)], pa.string())
        schema = self.schema.append(pa.field(UNREADABLE, pa.string()))
        return pa.RecordBatch.from_arrays([*made.columns, texts], schema=schema)

    def _unpack(self, columns: dict[str, Any], queue: MessageQueue) -> dict[int, str]:
        """Decompress the bodies in `columns`; returns why those of some rows cannot be."""
        packed = _packed_rows(columns)
        if not len(packed):
            return {}
        flags = columns["sys_flag"].to_numpy()
        bodies = columns["value"].to_pylist()
        reasons: dict[int, str] = {}
        size = 0
        for row in packed.tolist():
            try:
                bodies[row] = decompress_body(bodies[row], int(flags[row]), self._body_size_max)
            except errors.DecompressionFailed as error:
                # A package that is missing here is no fault of the message.
                if not self._keeps_unreadable or isinstance(error, errors.CodecMissing):
                    place = place_of(queue, columns["queue_offset"][row].as_py())
                    raise type(error)(f"the message at {place}: {error}") from None
                reasons[row] = f"the body cannot be decompressed: {error}"
            size += len(bodies[row])
            if size > PLAIN_SIZE_MAX and len(bodies) > 1:
                raise BodiesTooLarge(f"{len(bodies)} bodies have more than {PLAIN_SIZE_MAX} bytes")
        columns["value"] = pa.array(bodies, pa.binary())
        return reasons

    def properties(self, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
        """A map for each message, empty if it has no properties."""
        return property_maps(columns["properties"], self._include_system)

    def headers(self, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
        """Properties as a list of pairs, null if a message has none."""
        return headers_of(self.properties(columns, queue, count))


def _packed_rows(columns: Mapping[str, Any]) -> Any:
    return np.flatnonzero(columns["sys_flag"].to_numpy() & _COMPRESSED)


def _renamed(name: str) -> _Maker:
    def make(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
        return columns[_CODEC_NAMES[name]]

    return make


def _topics(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
    return _repeated(queue.topic, count)


def _brokers(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
    return _repeated(queue.broker_name, count)


def _partitions(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
    return number_array(np.full(count, queue.queue_id, np.int32))


def _ids(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
    found = columns["uniq_key"]
    return pc.coalesce(found, columns["message_id"]) if found.null_count else found


def _key_bytes(_: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int) -> Any:
    return columns["keys"].cast(pa.binary())


def _timestamp_types(
    _: BatchMaker, columns: Mapping[str, Any], queue: MessageQueue, count: int
) -> Any:
    return number_array(np.full(count, _LOG_APPEND_TIME, np.int32))


def _repeated(text: str, count: int) -> Any:
    raw = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(raw)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raw * count)
    )


_Maker = Callable[[BatchMaker, Mapping[str, Any], MessageQueue, int], Any]
_MAKERS: Final[Mapping[str, _Maker]] = {
    "properties": BatchMaker.properties,
    "topic": _topics,
    "broker": _brokers,
    "partition": _partitions,
    "msgId": _ids,
    "keyBytes": _key_bytes,
    "timestampType": _timestamp_types,
    "headers": BatchMaker.headers,
}
