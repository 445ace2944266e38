"""Types of payloads with values, for tests that write and read them back."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_naive = st.datetimes()


def _decimals(precision: int, scale: int) -> Any:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=50))
    )


_LEAVES: dict[Any, Any] = {
    pa.string(): _text,
    pa.binary(): st.binary(max_size=8),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(1 << 7), (1 << 7) - 1),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(10, 2): _decimals(10, 2),
    pa.decimal128(38, 0): _decimals(38, 0),
    pa.decimal128(38, 38): _decimals(38, 38),
    pa.date32(): st.dates(),
    TIMESTAMP: _naive.map(lambda moment: moment.replace(tzinfo=datetime.timezone.utc)),
    TIMESTAMP_NTZ: _naive,
}


def _typed(kinds: Any) -> Any:
    """(type, values) of arrays, maps and structs of `kinds`."""
    return st.one_of(
        kinds.map(lambda one: (pa.list_(pa.field("element", one[0])), _lists(one[1]))),
        kinds.map(lambda one: (pa.map_(pa.string(), one[0]), _maps(one[1]))),
        st.lists(kinds, min_size=1, max_size=3).map(_structs),
    )


def _lists(values: Any) -> Any:
    return st.lists(st.none() | values, max_size=3)


def _maps(values: Any) -> Any:
    return st.dictionaries(_text, st.none() | values, max_size=3).map(lambda m: list(m.items()))


def _structs(kinds: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    names = [f"f {number}é" for number in range(len(kinds))]
    fields = [pa.field(name, kind) for name, (kind, _) in zip(names, kinds, strict=True)]
    values = {name: st.none() | one[1] for name, one in zip(names, kinds, strict=True)}
    return pa.struct(fields), st.fixed_dictionaries(values)


_nested = st.recursive(st.sampled_from(list(_LEAVES.items())), _typed, max_leaves=5)


@st.composite
def arrays_of_structs(draw: st.DrawFn) -> Any:
    """A few rows of any type."""
    kind, values = _structs(draw(st.lists(_nested, min_size=1, max_size=4)))
    return pa.array(draw(st.lists(values, min_size=1, max_size=3)), kind)
