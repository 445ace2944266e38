"""Codec columns <-> Arrow, sharing the buffers. The only file of the codec that needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from broker_core.codec.records.column_batch import Buffer, Column, ColumnBatch
from broker_core.errors import InvalidArgument

# Name -> Arrow type, in the order of the columns of a record batch. Timestamps must have been
# decoded with column_names.MICROS.
ARROW_TYPES: Final[dict[str, Any]] = {
    "value": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "uniq_key": pa.string(),
    "properties": pa.binary(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "store_timestamp": pa.timestamp("us", "UTC"),
    "born_timestamp": pa.timestamp("us", "UTC"),
    "sys_flag": pa.int32(),
    "flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "physical_offset": pa.int64(),
    "message_id": pa.string(),
}


def to_arrow(columns: Mapping[str, Any], count: int) -> pa.RecordBatch:
    """Record batch over the buffers that `decode_columns` returned for `count` records."""
    arrays = {
        name: _to_array(kind, columns[name], count)
        for name, kind in ARROW_TYPES.items()
        if name in columns
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _to_array(kind: pa.DataType, column: Any, count: int) -> pa.Array:
    if not isinstance(column, tuple):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])
    data, offsets, *validity = column
    bitmap = pa.py_buffer(validity[0]) if validity and validity[0] is not None else None
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def batch_from_arrow(
    body: pa.Array,
    queues: tuple[tuple[bytes, int], ...],
    *,
    queue_index: Buffer | None = None,
    tags: pa.Array | None = None,
    keys: pa.Array | None = None,
    properties: pa.Array | None = None,
    **constants: Any,
) -> ColumnBatch:
    """`ColumnBatch` over Arrow arrays of (large) binary or (large) string, without a copy.

    `constants` are further fields of `ColumnBatch`. Null tags, keys and properties are absent; a
    null body is rejected. The arrays must stay alive as long as the batch is used.
    """
    count = len(body)
    if body.null_count:
        raise InvalidArgument("body column has null rows")
    index = None if queue_index is None else _fixed_width(queue_index, pa.int32(), count)
    batch = ColumnBatch(
        count,
        queues,
        index,
        column_from_arrow(body, count),
        None if tags is None else column_from_arrow(tags, count),
        None if keys is None else column_from_arrow(keys, count),
        None if properties is None else column_from_arrow(properties, count),
    )
    return batch._replace(**_with_buffers(constants, count))


def column_from_arrow(values: pa.Array, count: int) -> Column:
    """Codec column over a binary or string array; null rows have no bytes."""
    if len(values) != count:
        raise InvalidArgument(f"column has {len(values)} rows instead of {count}")
    width = _offset_width(values.type)
    column = _shared_column(values, width)
    if values.null_count and _nulls_have_bytes(values, column):
        # Arrow leaves the bytes under a null unspecified; most writers have none there.
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        column = _shared_column(values.fill_null("" if is_text else b""), width)
    return column


def _offset_width(kind: pa.DataType) -> int:
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 4
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return 8
    raise InvalidArgument(f"column type {kind} is neither binary nor string")


def _shared_column(values: pa.Array, width: int) -> Column:
    _, offsets, data = values.buffers()
    if offsets is None or len(values) == 0:
        return b"", bytes(width * (len(values) + 1)), width
    start = values.offset * width
    window = memoryview(offsets)[start : start + width * (len(values) + 1)]
    return b"" if data is None else data, window, width


def _nulls_have_bytes(values: pa.Array, column: Column) -> bool:
    _, offsets, width = column
    lengths = np.diff(np.frombuffer(offsets, np.int32 if width == 4 else np.int64))
    return bool(lengths[values.is_null().to_numpy(zero_copy_only=False)].any())


def _with_buffers(constants: dict[str, Any], count: int) -> dict[str, Any]:
    born = constants.get("born_timestamp")
    if born is None or isinstance(born, int):
        return constants
    return {**constants, "born_timestamp": _fixed_width(born, pa.int64(), count)}


def _fixed_width(values: Any, kind: pa.DataType, count: int) -> Buffer:
    """The values of an Arrow integer array as a buffer; other buffers are returned unchanged."""
    if not isinstance(values, pa.Array):
        return values
    if values.type != kind or values.null_count or len(values) != count:
        raise InvalidArgument(f"column must have {count} values of type {kind} and no nulls")
    data = values.buffers()[1]
    width = kind.bit_width // 8
    start = values.offset * width
    return b"" if data is None else memoryview(data)[start : start + count * width]
