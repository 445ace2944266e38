"""Arrow arrays of structs, lists and maps with other values at their leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rmq.number_arrays import number_array

Leaf = Callable[[Any, Any], Any]


def with_leaves(array: Any, kind: Any, leaf: Leaf) -> Any:
    """`array` as type `kind`, which has the same shape; `leaf` converts values that differ."""
    if array.type == kind:
        return array
    if not pa.types.is_nested(kind):
        return leaf(array, kind)
    if array.offset:
        # Arrow makes no lists of a slice with nulls.
        array = array.take(number_array(np.arange(len(array))))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        children = [
            with_leaves(array.field(place), field.type, leaf) for place, field in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        keys = with_leaves(array.keys, kind.key_type, leaf)
        items = with_leaves(array.items, kind.item_type, leaf)
        return pa.MapArray.from_arrays(_null_offsets(array, mask), keys, items, type=kind)
    values = with_leaves(array.values, kind.value_type, leaf)
    return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)


def _null_offsets(array: Any, mask: Any) -> Any:
    """Offsets with nulls where the array has them, for releases of Arrow that take no mask."""
    if mask is None:
        return array.offsets
    is_null = np.append(mask.to_numpy(zero_copy_only=False), False)
    return pa.array(array.offsets.to_numpy(), mask=is_null)


def spread(values: Any, is_valid: Any) -> Any:
    """An array with the `values`, in order, where `is_valid` is true, and null elsewhere."""
    if len(values) == len(is_valid):
        return values
    places = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int64())), 1)
    return values.take(pc.if_else(is_valid, places, pa.scalar(None, pa.int64())))


def with_numbers(array: Any) -> Any:
    """`array` with times and dates as numbers, because Python's types have fewer years."""
    return with_leaves(array, _numeric(array.type), lambda leaf, kind: leaf.cast(kind))


def _numeric(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _numeric(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _numeric(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _numeric(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def fields_of(kind: Any) -> list[Any]:
    """Fields of a nested type."""
    return [kind.field(place) for place in range(kind.num_fields)]


def leaves(array: Any) -> list[Any]:
    """The arrays at the leaves, with the values below nulls."""
    if pa.types.is_struct(array.type):
        return [
            leaf for place in range(array.type.num_fields) for leaf in leaves(array.field(place))
        ]
    if pa.types.is_map(array.type):
        return [*leaves(array.keys), *leaves(array.items)]
    if pa.types.is_list(array.type):
        return leaves(array.values)
    return [array]
