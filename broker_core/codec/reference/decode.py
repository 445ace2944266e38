"""Log pieces and queue units -> columns: the twin of `decode.c`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from broker_core.codec.records import column_names as names
from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.message_properties import split_properties
from broker_core.codec.records.record_layout import I64, SIZE_MAX
from broker_core.codec.records.record_parse import ParsedRecord, RecordFault, properties_end
from broker_core.codec.reference.spans import LogPieces, Span, read_unit, unit_places
from broker_core.errors import CorruptRecord

__all__ = ["decode_columns"]

_Found = tuple[memoryview, int, ParsedRecord]


def decode_columns(
    spans: Sequence[Span],
    units: Buffer,
    queue_offset: int,
    queue_id: int,
    topic: bytes | None,
    wanted: int,
    verify: int,
) -> dict[str, object]:
    """The columns `wanted` (bits of `column_names`) of the records that `units` point to."""
    pieces = LogPieces(spans)
    found: list[_Found] = []
    for number, (position, size) in enumerate(unit_places(units)):
        try:
            view, start = pieces.locate(position, size)
            record = read_unit(view, start, position, size, queue_offset + number, verify)
            if queue_id >= 0 and record.queue_id != queue_id:
                raise RecordFault(reasons.QUEUE_ID_DISAGREES)  # noqa: TRY301
            if topic is not None and record.topic != topic:
                raise RecordFault(reasons.TOPIC_DISAGREES)  # noqa: TRY301
        except RecordFault as fault:
            raise CorruptRecord("", position, fault.reason) from None
        found.append((view, start, record))
    columns: dict[str, object] = {}
    _add_text_columns(columns, found, wanted)
    _add_number_columns(columns, found, wanted)
    return columns


def _add_text_columns(columns: dict[str, object], found: list[_Found], wanted: int) -> None:
    if wanted & names.VALUE:
        values = [view[record.body_start : record.body_end] for view, _, record in found]
        columns["value"] = _packed(values)
    if wanted & names.TOPIC:
        columns["topic"] = (*_packed([record.topic for _, _, record in found]), None)
    if wanted & (names.TAGS | names.KEYS | names.UNIQ_KEY):
        properties = [
            split_properties(view[record.properties_start : record.end].tobytes())
            for view, _, record in found
        ]
        for bit, name in ((names.TAGS, "TAGS"), (names.KEYS, "KEYS"), (names.UNIQ_KEY, "UNIQ_KEY")):
            if wanted & bit:
                raw_name = name.encode()
                texts = [_repaired(pairs.get(raw_name, b"")) for pairs in properties]
                columns[name.lower()] = _nullable(texts)
    if wanted & names.PROPERTIES:
        columns["properties"] = _nullable(
            [
                view[record.properties_start : properties_end(view, record)].tobytes()
                for view, _, record in found
            ]
        )
    if wanted & names.MESSAGE_ID:
        ids = [
            (record.store_host + I64.pack(record.physical_offset)).hex().upper().encode()
            for _, _, record in found
        ]
        columns["message_id"] = (*_packed(ids), None)


_NUMBERS: Final[tuple[tuple[int, str, str, Callable[[ParsedRecord], int]], ...]] = (
    (names.QUEUE_ID, "queue_id", "i", lambda record: record.queue_id),
    (names.QUEUE_OFFSET, "queue_offset", "q", lambda record: record.queue_offset),
    (names.STORE_TIMESTAMP, "store_timestamp", "q", lambda record: record.store_timestamp),
    (names.BORN_TIMESTAMP, "born_timestamp", "q", lambda record: record.born_timestamp),
    (names.SYS_FLAG, "sys_flag", "i", lambda record: record.sys_flag),
    (names.FLAG, "flag", "i", lambda record: record.flag),
    (names.RECONSUME_TIMES, "reconsume_times", "i", lambda record: record.reconsume_times),
    (names.PHYSICAL_OFFSET, "physical_offset", "q", lambda record: record.physical_offset),
)
_TIMES: Final = names.STORE_TIMESTAMP | names.BORN_TIMESTAMP


def _add_number_columns(columns: dict[str, object], found: list[_Found], wanted: int) -> None:
    for bit, name, typecode, field in _NUMBERS:
        if wanted & bit:
            data = array(typecode, [field(record) for _, _, record in found]).tobytes()
            if bit & _TIMES and wanted & names.MICROS:
                # numpy wraps like the 64-bit product of the native twin.
                data = (np.frombuffer(data, np.int64) * 1000).tobytes()
            columns[name] = data


def _repaired(text: bytes) -> bytes:
    """`text` with invalid UTF-8 replaced by U+FFFD."""
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _packed(values: Sequence[bytes | memoryview]) -> tuple[bytes, bytes]:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    if int(offsets[-1]) > SIZE_MAX:
        raise OverflowError(reasons.COLUMN_TOO_LARGE)
    return b"".join(values), offsets.astype(np.int32).tobytes()


def _nullable(values: Sequence[bytes]) -> tuple[bytes, bytes, bytes | None]:
    """Like `_packed`, with a bitmap that marks empty values as absent, if there are any."""
    validity = None
    if not all(values):
        present = np.array([bool(value) for value in values])
        validity = np.packbits(present, bitorder="little").tobytes()
    return (*_packed(values), validity)
