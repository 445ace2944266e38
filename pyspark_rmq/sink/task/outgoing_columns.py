"""Converts Spark's Arrow batches to columns of messages, without a Python object per row.

value ──────────────────────────────► body
key, tags ──────────────────────────► keys, tags (shared, not copied)
properties, shardingKey, row name ──► property text
topic, partition, broker, … ────────► queue of each row
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import batch_from_arrow, compress_body, digest_rows, errors
from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.msgpack_bodies import encode_msgpack
from pyspark_rmq.payloads.nested_arrays import spread
from pyspark_rmq.payloads.spark_types import is_variant
from pyspark_rmq.sink.sink_options import COLUMN, HASH, SinkOptions
from pyspark_rmq.sink.task.json_rows import json_bodies
from pyspark_rmq.sink.task.payload_columns import Encoder, encoder_of
from pyspark_rmq.sink.task.queue_selection import RowPlaces
from pyspark_rmq.sink.task.sink_columns import Place, SinkColumns
from pyspark_rmq.source.rows.property_map import system_properties

# Row name: the same when a task or a batch is run again.
ROW_PROPERTY: Final = "SPARK_SINK_ROW"
# Original size of a row that was cut.
OVERSIZE_PROPERTY: Final = "SPARK_SINK_SIZE"
COMPRESS_FROM_SIZE: Final = 4_096
COMPRESSED: Final = 1
_SHARDING: Final = "__SHARDINGKEY\x01"
_SEPARATORS: Final = "[\x01\x02]"
_ROWS_AT_ONCE: Final = 5_000


class OutgoingColumns(NamedTuple):
    """Messages of one topic."""

    topic: str
    body: Any
    places: RowPlaces
    tags: Any = None
    keys: Any = None
    properties: Any = None
    """Arrow string: encoded property text"""
    flags: Any = None
    """numpy int32"""
    delay_levels: Any = None
    """numpy int32"""
    deliver_at: Any = None
    """numpy int64: epoch milliseconds; 0 for at once"""
    packed: Any = None
    """numpy bool: the body is compressed"""

    @property
    def row_count(self) -> int:
        """Number of messages."""
        return len(self.body)

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        _, offsets, width = batch_from_arrow(self.body, ()).body
        ends = np.frombuffer(offsets, np.int32 if width == 4 else np.int64)
        return int(ends[-1] - ends[0])

    @property
    def digest(self) -> int:
        """Digest of the messages, independent of their queues; see `digest_rows`."""
        batch = batch_from_arrow(
            self.body, (), tags=self.tags, keys=self.keys, properties=self.properties
        )
        return digest_rows(batch, self.flags)

    def take(self, rows: Any) -> OutgoingColumns:
        """Some of the rows, given as an int64 or boolean numpy array."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        index = number_array(rows)

        def some(column: Any) -> Any:
            return None if column is None else column.take(index)

        return OutgoingColumns(
            self.topic,
            self.body.take(index),
            self.places.take(rows),
            some(self.tags),
            some(self.keys),
            some(self.properties),
            None if self.flags is None else self.flags[rows],
            *(None if found is None else found[rows] for found in self[7:]),
        )

    @property
    def is_delayed(self) -> Any:
        """Boolean numpy array: which rows are delayed. None if none is."""
        found = None
        for column in (self.delay_levels, self.deliver_at):
            if column is not None and column.any():
                found = (column != 0) if found is None else found | (column != 0)
        return found

    def runs_of_one_flag(self) -> Iterator[tuple[int, int, OutgoingColumns]]:
        """Rows in order, split where a flag changes: (flag, sys flag, rows)."""
        kinds = np.zeros(self.row_count, np.int64)
        if self.flags is not None:
            kinds += self.flags.astype(np.int64) * 2
        if self.packed is not None:
            kinds += self.packed
        cuts = np.flatnonzero(np.diff(kinds)) + 1
        if not len(cuts):
            kind = int(kinds[0]) if len(kinds) else 0
            yield kind >> 1, kind & COMPRESSED, self
            return
        bounds = [0, *cuts.tolist(), len(kinds)]
        for first, after in itertools.pairwise(bounds):
            kind = int(kinds[first])
            yield kind >> 1, kind & COMPRESSED, self.take(np.arange(first, after))

    def is_long(self) -> Any:
        """Boolean numpy array: which bodies are worth compressing."""
        return pc.greater_equal(pc.binary_length(self.body), COMPRESS_FROM_SIZE).to_numpy(
            zero_copy_only=False
        )

    def compressed(self) -> OutgoingColumns:
        """Compress long bodies where that makes them shorter; one Python object for each body."""
        is_long = self.is_long()
        if not is_long.any():
            return self
        bodies = self.body.cast(pa.binary()).to_pylist()
        packed = np.zeros(len(bodies), bool)
        for row in np.flatnonzero(is_long).tolist():
            shorter = compress_body(bodies[row])
            if len(shorter) < len(bodies[row]):
                bodies[row], packed[row] = shorter, True
        return self._replace(body=pa.array(bodies, pa.binary()), packed=packed)


class ColumnReader:
    """Reads the batches of one task. `row_name` is the prefix of row names; "" for no names."""

    def __init__(self, columns: SinkColumns, options: SinkOptions, row_name: str = "") -> None:
        self._columns = columns
        self._options = options
        self._row_name = row_name
        self._index = 0
        self._encoder: Encoder | None = None
        # Oversize rows: dropped, or cut and written to another topic.
        self.oversize_count = 0

    def messages(self, batch: Any) -> list[OutgoingColumns]:
        """The rows of a record batch, topic by topic. Raises for rows that cannot be written."""
        body = self._bodies(batch)
        names = self._row_names(len(body))
        keep = self._fitting(body)
        if keep is None:
            return self._outgoing(batch, body, names)

        def rows(where: Any) -> tuple[Any, Any, Any]:
            some = None if names is None else names.filter(where)
            return batch.filter(where), body.filter(where), some

        found = self._outgoing(*rows(keep))
        if self._options.oversize_topic:
            found += self._cut(*rows(pc.invert(keep)))
        return found

    def _cut(self, batch: Any, body: Any, names: Any) -> list[OutgoingColumns]:
        """The beginning of oversize rows, for `oversizeTopic`."""
        sizes = pc.binary_join_element_wise(
            OVERSIZE_PROPERTY, pc.binary_length(body).cast(pa.string()), "\x01"
        )
        if names is not None:
            sizes = pc.binary_join_element_wise(sizes, names, "\x02")
        whole = body.cast(pa.binary())
        beginnings = pc.binary_slice(whole, 0, self._options.body_size_max)
        keys = _key_texts(batch, self._columns.key)
        return [
            OutgoingColumns(
                self._options.oversize_topic,
                beginnings,
                RowPlaces(len(body)),
                _text(batch, self._columns.tags, "tags"),
                keys,
                sizes,
            )
        ]

    def _outgoing(self, batch: Any, body: Any, names: Any) -> list[OutgoingColumns]:
        if not len(body):
            return []
        columns = self._columns
        sharding = _text(batch, columns.sharding_key, "shardingKey")
        keys = _key_texts(batch, columns.key)
        found = OutgoingColumns(
            self._options.topic,
            body,
            self._places(batch, sharding, keys),
            _text(batch, columns.tags, "tags"),
            keys,
            self._property_texts(batch, sharding, names),
            _numbers(batch, columns.flag),
            _numbers(batch, columns.delay_level),
            _times(batch, columns.deliver_at),
        )
        if columns.topic is None:
            return [found]
        return _by_topic(found, batch.column(columns.topic))

    def _bodies(self, batch: Any) -> Any:
        place, payload = self._columns.value, self._columns.payload
        if place is None:
            return json_bodies(batch) if payload is None else self._encoded(_object(batch, payload))
        body = batch.column(place)
        if body.null_count:
            raise _nulls("value", body, "every message has a body")
        return body if payload is None else self._encoded(body)

    def _encoded(self, values: Any) -> Any:
        if self._options.value_schema.option:
            if self._encoder is None:
                self._encoder = encoder_of(values.type, self._options)
            return self._encoder.encode(values)
        is_msgpack = self._options.value_format == formats.MSGPACK
        return encode_msgpack(values) if is_msgpack else encode_json(values)

    def _row_names(self, count: int) -> Any:
        if not self._row_name:
            return None
        numbers = number_array(np.arange(self._index, self._index + count)).cast(pa.string())
        self._index += count
        return pc.binary_join_element_wise(f"{ROW_PROPERTY}\x01{self._row_name}", numbers, ":")

    def _fitting(self, body: Any) -> Any:
        """Mask of rows to keep; None for all."""
        if not len(body):
            return None
        lengths = pc.binary_length(body)
        largest = pc.max(lengths).as_py()
        if largest <= self._options.body_size_max:
            return None
        if not self._options.drops_oversize and not self._options.oversize_topic:
            raise errors.MessageTooLarge(
                f"a value has {largest} bytes, maxMessageSize is {self._options.body_size_max}:"
                " raise it here and at the broker, or give oversizePolicy=drop or dlq"
            )
        keep = pc.less_equal(lengths, self._options.body_size_max)
        self.oversize_count += len(body) - pc.sum(keep).as_py()
        return keep

    def _places(self, batch: Any, sharding: Any, keys: Any) -> RowPlaces:
        columns = self._columns
        by_column = columns.selector == COLUMN
        hash_keys = sharding
        if hash_keys is None and (columns.selector == HASH or (by_column and columns.hashes_keys)):
            hash_keys = keys
        return RowPlaces(
            batch.num_rows,
            _column(batch, columns.partition) if by_column else None,
            _column(batch, columns.broker) if by_column else None,
            hash_keys,
        )

    def _property_texts(self, batch: Any, sharding: Any, names: Any) -> Any:
        texts = []
        if self._columns.properties is not None:
            texts.append(_joined_maps(batch.column(self._columns.properties)))
        if self._columns.headers is not None:
            texts.append(_joined_maps(_header_maps(batch.column(self._columns.headers)), "headers"))
        for name, place in self._columns.property_columns:
            column = _not_empty(_text(batch, place, name))
            texts.append(pc.binary_join_element_wise(f"{name}\x01", column, ""))
        if sharding is not None:
            texts.append(pc.binary_join_element_wise(_SHARDING, _not_empty(sharding), ""))
        if names is not None:
            texts.append(names)
        if not texts:
            return None
        if len(texts) == 1:
            return texts[0]
        return pc.binary_join_element_wise(*texts, "\x02", null_handling="skip")


def batches_of_rows(rows: Iterable[Any], schema: Any) -> Iterator[Any]:
    """Record batches of the rows that Spark 4.0 passes to a stream writer."""
    held: list[Any] = []
    for row in rows:
        held.append(row)
        if len(held) == _ROWS_AT_ONCE:
            yield _batch_of_rows(held, schema)
            held = []
    if held:
        yield _batch_of_rows(held, schema)


def _batch_of_rows(rows: list[Any], schema: Any) -> Any:
    columns = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        columns.append(pa.array([_plain(v, field.type) for v in values], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(value: Any, kind: Any) -> Any:
    """A value of a Spark row in the form that Arrow takes: rows as dicts, maps as pairs."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return bytes(value)
    if is_variant(kind):
        return {"value": bytes(value.value), "metadata": bytes(value.metadata)}
    if pa.types.is_struct(kind):
        return {f.name: _plain(v, f.type) for f, v in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_plain(k, kind.key_type), _plain(v, kind.item_type)) for k, v in value.items()]
    if pa.types.is_list(kind):
        return [_plain(v, kind.value_type) for v in value]
    return value


def _by_topic(found: OutgoingColumns, topics: Any) -> list[OutgoingColumns]:
    if topics.null_count:
        raise _nulls("topic", topics, "every message has a topic")
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [found._replace(topic=names[0])]
    codes = encoded.indices.to_numpy()
    return [found.take(codes == code)._replace(topic=name) for code, name in enumerate(names)]


def _nulls(name: str, column: Any, reason: str) -> errors.InvalidArgument:
    count = f"{column.null_count} row{'s' if column.null_count > 1 else ''}"
    return errors.InvalidArgument(
        errors.explained(
            f"column {name} is null in {count}, and {reason}: leave such rows out with"
            f' .where("{name} IS NOT NULL"), or fill them with coalesce({name}, …)',
            "null-values",
        )
    )


def _column(batch: Any, index: int | None) -> Any:
    return None if index is None else batch.column(index)


def _object(batch: Any, places: tuple[int, ...]) -> Any:
    """Some columns as one column of structs."""
    fields = [batch.schema.field(place) for place in places]
    return pa.StructArray.from_arrays([batch.column(p) for p in places], fields=fields)


def _key_texts(batch: Any, place: Place | None) -> Any:
    """A column of keys; nested values, which keyFormat=json permits, as JSON."""
    if not isinstance(place, int) or not pa.types.is_nested(batch.schema.field(place).type):
        return _text(batch, place, "key")
    values = batch.column(place)
    texts = encode_json(values.drop_null()).cast(pa.string())
    return spread(texts, values.is_valid())


def _text(batch: Any, place: Place | None, name: str) -> Any:
    """A column of texts that may be properties of a message."""
    if place is None:
        return None
    if isinstance(place, int):
        texts = batch.column(place)
    else:
        texts = batch.column(place[0]).flatten()[place[1]]
    if pa.types.is_binary(texts.type):
        try:
            texts = texts.cast(pa.string())
        except pa.ArrowInvalid:
            raise errors.InvalidArgument(f"column {name} has bytes that are not UTF-8") from None
    elif not pa.types.is_string(texts.type):
        # Columns of a payload may be numbers.
        texts = texts.cast(pa.string())
    _refuse_separators(texts, f"column {name}")
    return texts


def _refuse_separators(texts: Any, what: str) -> None:
    if pc.any(pc.match_substring_regex(texts, _SEPARATORS)).as_py():
        raise errors.InvalidArgument(
            f"{what} has a character 0x01 or 0x02, which separates properties in a message"
        )


def _numbers(batch: Any, index: int | None) -> Any:
    """Null counts as 0."""
    if index is None:
        return None
    return pc.fill_null(batch.column(index), 0).to_numpy(zero_copy_only=False).astype(np.int32)


def _times(batch: Any, index: int | None) -> Any:
    """Epoch milliseconds; null counts as 0."""
    if index is None:
        return None
    times = batch.column(index)
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    return pc.fill_null(times, 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _not_empty(texts: Any) -> Any:
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)


def _header_maps(headers: Any) -> Any:
    """Kafka's headers as maps of properties, which have each name once and texts as values."""
    pairs = headers.flatten()
    names, values = pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)
    if names.null_count:
        raise errors.InvalidArgument("column headers has a header without a key")
    try:
        values = values.cast(pa.string())
    except pa.ArrowInvalid:
        raise errors.InvalidArgument(
            "column headers has a value that is not UTF-8: properties of a message are texts"
        ) from None
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(headers)), lengths)
    if len(np.unique(rows * (len(codes) + 1) + codes)) != len(codes):
        raise errors.InvalidArgument(
            "column headers has the same key twice in a row: a message has each property once"
        )
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.MapArray.from_arrays(number_array(offsets), names, values)


def _joined_maps(maps: Any, column: str = "properties") -> Any:
    """Property text of each map; null for none."""
    first, after = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    names, values = maps.keys.slice(first, after - first), maps.items.slice(first, after - first)
    if len(names):
        _check_names(names, column)
        _refuse_separators(values, f"a value of column {column}")
    # Readers drop pairs without a value.
    pairs = pc.binary_join_element_wise(names, pc.fill_null(values, ""), "\x01")
    offsets = pc.subtract(maps.offsets, pa.scalar(first, pa.int32())).cast(pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), "\x02")
    return _not_empty(pc.if_else(maps.is_valid(), joined, None))


def _check_names(names: Any, column: str) -> None:
    _refuse_separators(names, f"a name of column {column}")
    if pc.any(pc.equal(pc.binary_length(names), 0)).as_py():
        raise errors.InvalidArgument(f"column {column} has a name that is empty")
    reserved = names.filter(pc.is_in(names, value_set=system_properties()))
    if len(reserved):
        raise errors.InvalidArgument(
            f"column {column} has {', '.join(sorted(set(reserved.to_pylist())))}, which RocketMQ"
            " uses itself: key, tags, shardingKey, delayLevel and deliverAt set what can be set"
        )
