"""Plans of columns, and rows that are refused among rows that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_rmq.payloads import native
from pyspark_rmq.payloads.bad_records import BadRow, Decoded
from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.spark_types import TIMESTAMP

KIND = pa.struct(
    [("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.string())]))), ("t", TIMESTAMP)]
)


def test_children_follow_one_after_the_other() -> None:
    found = plans.flat_columns(KIND)
    assert found is not None
    assert [(one.name, one.first, one.child_count) for one in found] == [
        ("", 1, 3), ("a", 0, 0), ("l", 4, 1), ("t", 0, 0), ("", 5, 1), ("x", 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [pa.uint8(), pa.large_string(), pa.decimal256(50, 2), pa.decimal128(5, -2), pa.time64("us")],
)
def test_other_types_are_left_to_python(kind: Any) -> None:
    assert plans.flat_columns(pa.struct([("a", kind)])) is None
    assert plans.planned(plans.JSON, pa.struct([("a", kind)])) is None


@pytest.mark.parametrize(
    "field",
    [pa.field("x", pa.int32(), nullable=False), pa.field("x", pa.int32(), metadata={"a": "b"})],
)
def test_structs_that_no_schema_has_are_left_to_python(field: Any) -> None:
    assert plans.flat_columns(pa.struct([("a", pa.struct([field]))])) is None


def test_a_payload_is_nested() -> None:
    assert plans.planned(plans.JSON, pa.int32()) is None


def test_python_can_be_forced() -> None:
    assert native.chosen_decoder("python") is None


def test_a_missing_module_is_an_error_if_it_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(native, "import_module", missing)
    assert native.chosen_decoder("") is None
    with pytest.raises(ImportError):
        native.chosen_decoder("native")


class Refusing:
    """Refuses given rows, and returns the number of the others."""

    def __init__(self, *refused: int) -> None:
        self._refused = refused

    def decode(self, data: Any, offsets: Any, first: int, count: int) -> Any:
        is_valid = np.isin(np.arange(count), self._refused, invert=True)
        bits = np.packbits(is_valid, bitorder="little").tobytes()
        values = np.arange(count, dtype=np.int64).tobytes()
        nulls = len(self._refused)
        columns = [(count, nulls, bits, None, None), (count, nulls, bits, None, values)]
        return columns, np.array(self._refused, np.int32).tobytes()


def decoded(by_row: dict[str, int], *refused: int, count: int = 4) -> tuple[Any, Any]:
    kind = pa.struct([("n", pa.int64())])
    columns = plans.flat_columns(kind)
    assert columns is not None
    bodies = [b"row %d" % number for number in range(count)]

    def python(given: Any) -> Decoded:
        texts = [body.decode() for body in given.to_pylist()]
        values = [None if text not in by_row else {"n": by_row[text]} for text in texts]
        bad = [BadRow(row, text) for row, text in enumerate(texts) if text not in by_row]
        return Decoded(pa.array(values, kind), bad)

    planned = plans.PlannedDecoder(kind, Refusing(*refused), columns)
    found = planned.decode(pa.array(bodies, pa.binary()), python)
    return [row and row["n"] for row in found.values.to_pylist()], list(found.bad)


def test_nothing_is_refused() -> None:
    assert decoded({}) == ([0, 1, 2, 3], [])


def test_python_decodes_what_is_refused() -> None:
    assert decoded({"row 1": 11, "row 3": 33}, 1, 3) == ([0, 11, 2, 33], [])


def test_python_decides_what_is_bad() -> None:
    found = decoded({"row 3": 33}, 1, 3)
    assert found == ([0, None, 2, 33], [BadRow(1, "row 1")])


def test_all_refused_rows_are_bad() -> None:
    found = decoded({}, 0, 2)
    assert found == ([None, 1, None, 3], [BadRow(0, "row 0"), BadRow(2, "row 2")])


def test_a_bad_row_keeps_what_python_returns_for_it() -> None:
    empty = {"a": None, "l": None, "t": None}
    planned = plans.planned(plans.JSON, KIND)
    if planned is None:
        pytest.skip("the native payload decoders are not built")
    rest = Decoded(pa.array([empty], KIND), [BadRow(0, "why")])
    found = planned.decode(pa.array([b"{}", b"x"], pa.binary()), lambda _: rest)
    assert found.values.to_pylist() == [empty, empty]
    assert list(found.bad) == [BadRow(1, "why")]


def test_all_rows_are_refused() -> None:
    assert decoded({"row 0": 7, "row 1": 8}, 0, 1, count=2) == ([7, 8], [])
