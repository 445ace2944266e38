"""Nested arrays keep their nulls and lengths when their leaves change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.nested_arrays import leaves, spread, with_leaves


def of(leaf: Any) -> Any:
    inner = pa.struct([pa.field("m", pa.map_(pa.string(), leaf)), pa.field("s", pa.string())])
    return pa.list_(pa.field("element", inner))


VALUES = [
    [{"m": [("a", 1), ("b", None)], "s": "x"}, None], None, [], [{"m": None, "s": None}],
    [{"m": [], "s": "y"}, {"m": [("c", 3)], "s": "z"}],
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(VALUES)))
def test_leaves_are_converted(first: int) -> None:
    array = pa.array(VALUES, of(pa.int32())).slice(first)
    found = with_leaves(array, of(pa.int64()), lambda values, kind: values.cast(kind))
    found.validate(full=True)
    assert found.equals(pa.array(VALUES[first:], of(pa.int64())))


def test_all_leaves_are_found() -> None:
    kinds = [leaf.type for leaf in leaves(pa.array(VALUES, of(pa.float32())))]
    assert kinds == [pa.string(), pa.float32(), pa.string()]


def test_values_are_spread_over_the_rows_that_have_one() -> None:
    is_valid = pa.array([False, True, True, False, True])
    assert spread(pa.array(["a", "b", None]), is_valid).to_pylist() == [None, "a", "b", None, None]
    assert spread(pa.array([], pa.string()), pa.array([False, False])).to_pylist() == [None, None]
    assert spread(pa.array(["a"]), pa.array([True])).to_pylist() == ["a"]
