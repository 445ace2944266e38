"""Batches of messages to batches with decoded payloads, and what happens to bad records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import MessageQueue, errors
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.bad_records import (
    UNREADABLE,
    BadBody,
    BadRecord,
    BadRow,
    Decoded,
    Decoder,
    place_of,
)
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.msgpack_bodies import MsgpackDecoder
from pyspark_rmq.payloads.nested_arrays import spread
from pyspark_rmq.payloads.read_columns import (
    BAD_VALUE,
    FIELD,
    KEY,
    MESSAGE_ID,
    VALUE,
    PayloadColumn,
    ReadColumn,
    message_columns,
)
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.texts import TextDecoder

_log = logging.getLogger(__name__)

# Writes bad records elsewhere before the rows around them are returned.
WriteBad = Callable[[MessageQueue, Sequence[BadBody]], None]


def are_typed(columns: Sequence[ReadColumn]) -> bool:
    """Whether some column is decoded from the body."""
    return any(isinstance(column, PayloadColumn) for column in columns)


class TypedRows:
    """Makes the batches of one task."""

    def __init__(
        self,
        columns: Sequence[ReadColumn],
        options: PayloadOptions,
        naming: str,
        message_schema: Any,
        write_bad: WriteBad | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._options = options
        self._write_bad = write_bad
        messages = message_columns(columns, naming, with_id=bool(options.dead_letter_topic))
        self._places = {column.name: place for place, column in enumerate(messages)}
        self._decoder = decoder_of(columns, options)
        self._kind = _payload_type(columns)
        keys = [c.arrow_type for c in columns if isinstance(c, PayloadColumn) and c.role == KEY]
        self._key_decoder = (
            JsonDecoder(keys[0], options.times, KEY, options.keeps_fields) if keys else None
        )
        self.schema = pa.schema(
            [
                message_schema.field(self._places[column.name])
                if isinstance(column, ChosenColumn)
                else pa.field(column.output_name, column.arrow_type)
                for column in columns
            ]
        )
        self._skipped = 0
        self._first_skipped = ""

    def batch(self, messages: Any, queue: MessageQueue) -> Any:
        """The rows of messages of one queue. Raises `BadRecord` with badRecords=fail."""
        if not messages.num_rows:
            return _empty(self.schema)
        decoded = self._decoded(messages)
        if decoded.places is not None:
            # A body may be several rows, or none.
            messages = messages.take(decoded.places)
        keys = self._keys(messages)
        bad = _joined(decoded.bad, keys.bad)
        if bad and self._options.bad_records == formats.FAIL:
            is_value = bool(decoded.bad) and decoded.bad[0] == bad[0]
            raise self._failure(bad[0], is_value, messages, queue)
        if bad and self._options.bad_records in formats.WITHOUT_ROW:
            self._note_skipped(bad, messages, queue)
            if self._write_bad is not None:
                self._write_bad(queue, self._bad_bodies(bad, messages))
        arrays = self._arrays(messages, decoded.values, keys.values, bad)
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if bad and self._options.bad_records in formats.WITHOUT_ROW:
            return made.filter(pa.array(~_bad_mask(bad, messages.num_rows)))
        return made

    def _decoded(self, messages: Any) -> Decoded:
        """The payloads; bodies that could not be decompressed are bad and are not decoded."""
        if self._decoder is None:
            return Decoded(None)
        bodies = messages.column(self._places["value"])
        reasons = _unreadable(messages)
        if reasons is None:
            return self._decoder.decode(bodies)
        is_good = reasons.is_null()
        good = bodies.filter(is_good)
        # Not every decoder takes no bodies.
        decoded = self._decoder.decode(good) if len(good) else Decoded(pa.nulls(0, self._kind))
        return _with_bad(decoded, is_good, reasons)

    def _keys(self, messages: Any) -> Decoded:
        """Typed keys; null for messages without a key."""
        if self._key_decoder is None:
            return Decoded(None)
        texts = messages.column(self._places[KEY])
        decoded = self._key_decoder.decode(texts.drop_null().cast(pa.binary()))
        values = spread(decoded.values, texts.is_valid())
        rows = pc.indices_nonzero(texts.is_valid())
        return Decoded(values, [BadRow(rows[row].as_py(), reason) for row, reason in decoded.bad])

    def report_skipped(self) -> None:
        """Log how many records were skipped."""
        if self._skipped:
            _log.warning(
                "badRecords=%s: skipped %d bad records, the first at %s",
                self._options.bad_records,
                self._skipped,
                self._first_skipped,
            )

    def _arrays(self, messages: Any, values: Any, keys: Any, bad: Sequence[BadRow]) -> list[Any]:
        fields = iter(values.flatten() if any(_is(FIELD, c) for c in self._columns) else ())
        arrays = []
        for column in self._columns:
            if isinstance(column, ChosenColumn):
                arrays.append(messages.column(self._places[column.name]))
            elif column.role == FIELD:
                arrays.append(next(fields))
            elif column.role == VALUE:
                arrays.append(values)
            elif column.role == KEY:
                arrays.append(keys)
            else:
                arrays.append(self._of_bad(column, messages, bad))
        return arrays

    def _of_bad(self, column: PayloadColumn, messages: Any, bad: Sequence[BadRow]) -> Any:
        if not bad:
            return pa.nulls(messages.num_rows, column.arrow_type)
        found: list[Any] = [None] * messages.num_rows
        bodies = messages.column(self._places["value"])
        for row, reason in bad:
            found[row] = bodies[row].as_py() if column.role == BAD_VALUE else reason
        return pa.array(found, column.arrow_type)

    def _failure(
        self, bad: BadRow, is_value: bool, messages: Any, queue: MessageQueue
    ) -> BadRecord:
        options = self._options
        expected = (
            f"valueFormat={options.value_format}" if is_value else f"keyFormat={options.key_format}"
        )
        reasons = _unreadable(messages)
        reason = f" is not {expected} of the schema: {bad.reason}. Correct the schema, or give"
        if reasons is not None and reasons[bad.row].is_valid:
            reason = f": {bad.reason}. Give"
        text = (
            f"the message at {self._place(bad, messages, queue)}{reason} badRecords=null (with"
            " columns badValue and badReason), badRecords=deadLetter (with deadLetterTopic) or"
            " badRecords=skip to read on"
        )
        return BadRecord(errors.explained(text, "bad-records"))

    def _note_skipped(self, bad: Sequence[BadRow], messages: Any, queue: MessageQueue) -> None:
        if not self._skipped:
            self._first_skipped = f"{self._place(bad[0], messages, queue)}: {bad[0].reason}"
        self._skipped += len(bad)

    def _bad_bodies(self, bad: Sequence[BadRow], messages: Any) -> list[BadBody]:
        bodies, offsets, ids = (
            messages.column(self._places[name]) for name in ("value", "offset", MESSAGE_ID)
        )
        found = [
            BadBody(offsets[row].as_py(), bodies[row].as_py(), why, ids[row].as_py())
            for row, why in bad
        ]
        # Several rows of one message are one dead letter.
        return list({one.offset: one for one in reversed(found)}.values())[::-1]

    def _place(self, bad: BadRow, messages: Any, queue: MessageQueue) -> str:
        offset = messages.column(self._places["offset"])[bad.row].as_py()
        return place_of(queue, offset)


def decoder_of(columns: Sequence[ReadColumn], options: PayloadOptions) -> Decoder | None:
    """None if bodies are not decoded.

    Raises `InvalidArgument` if the schema of the format does not fit the columns.
    """
    if not options.is_typed:
        return None
    if options.value_format == formats.STRING:
        return TextDecoder()
    kind = _payload_type(columns)
    if options.value_format == formats.AVRO:
        return _avro_decoder(kind, options.schema)
    if options.value_format == formats.PROTOBUF:
        # Its package is optional.
        from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
        from pyspark_rmq.payloads.registry.decoders import FramedProtobufDecoder

        return FramedProtobufDecoder(ProtobufDecoder(kind, options.schema), options.schema.framing)
    if options.value_format == formats.MSGPACK:
        return MsgpackDecoder(kind, options.time_zone)
    if options.value_format in formats.CHANGES:
        from pyspark_rmq.payloads.changes.decoder import ChangeDecoder

        return ChangeDecoder(
            kind, options.value_format, options.times, keeps_fields=options.keeps_fields
        )
    return JsonDecoder(kind, options.times, keeps_fields=options.keeps_fields)


def _payload_type(columns: Sequence[ReadColumn]) -> Any:
    """The type of decoded bodies."""
    fields = [
        pa.field(column.output_name, column.arrow_type)
        for column in columns
        if isinstance(column, PayloadColumn) and column.role == FIELD
    ]
    kinds = [c.arrow_type for c in columns if isinstance(c, PayloadColumn) and c.role == VALUE]
    # Without any of them a body must still be an object.
    return kinds[0] if kinds else pa.struct(fields)


def _avro_decoder(kind: Any, given: SchemaOptions) -> Decoder:
    if not given.registry.url:
        return AvroDecoder(kind, given)
    from pyspark_rmq.payloads.registry.decoders import RegistryDecoder

    return RegistryDecoder(kind, given)


def _is(role: str, column: ReadColumn) -> bool:
    return isinstance(column, PayloadColumn) and column.role == role


def _unreadable(messages: Any) -> Any:
    """Why bodies are not decompressed, null for others; None if all are."""
    if messages.schema.names[-1] != UNREADABLE:
        return None
    return messages.column(messages.num_columns - 1)


def _with_bad(decoded: Decoded, is_good: Any, reasons: Any) -> Decoded:
    """What was decoded of the good bodies, with a bad row for each of the others, in order."""
    good = np.flatnonzero(is_good.to_numpy(zero_copy_only=False))
    others = np.flatnonzero(reasons.is_valid().to_numpy(zero_copy_only=False))
    places = good if decoded.places is None else good[np.asarray(decoded.places)]
    all_places = np.concatenate([places, others])
    order = np.argsort(all_places, kind="stable")
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    is_other = order >= len(places)
    values = decoded.values.take(pa.array(np.where(is_other, 0, order), mask=is_other))
    bad = [BadRow(int(row_of[row]), reason) for row, reason in decoded.bad]
    for row, place in enumerate(others.tolist(), len(places)):
        bad.append(BadRow(int(row_of[row]), reasons[place].as_py()))
    return Decoded(values, sorted(bad), pa.array(all_places[order]))


def _joined(of_values: Sequence[BadRow], of_keys: Sequence[BadRow]) -> list[BadRow]:
    """The bad rows in order, one for each row; that of the value if key and value are bad."""
    found = {bad.row: bad for bad in (*of_keys, *of_values)}
    return [found[row] for row in sorted(found)]


def _bad_mask(bad: Sequence[BadRow], count: int) -> Any:
    mask = np.zeros(count, bool)
    mask[[one.row for one in bad]] = True
    return mask


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
