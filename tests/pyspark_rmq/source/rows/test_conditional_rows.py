"""Rows that meet conditions, also on columns that are not read."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_rmq.columns import column_of
from pyspark_rmq.source.rows.conditional_rows import ConditionalRows
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.predicates import Predicate
from tests.pyspark_rmq.source.rows.test_message_batches import QUEUE, run_of

VALUE = (column_of("value"),)


def values(*predicates: Predicate, **options: Any) -> list[bytes]:
    maker = ConditionalRows(VALUE, predicates, "default", **options)
    batch = maker.batch(run_of(b"0", b"1", b"2", b"3"), QUEUE)
    assert batch.schema == arrow_schema(VALUE), "columns of conditions are not returned"
    found: list[bytes] = batch.column(0).to_pylist()
    return found


@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        ("=", 2, [b"2"]),
        ("<", 2, [b"0", b"1"]),
        ("<=", 2, [b"0", b"1", b"2"]),
        (">", 2, [b"3"]),
        (">=", 2, [b"2", b"3"]),
        ("in", (0, 3), [b"0", b"3"]),
    ],
)
def test_comparisons(op: str, value: Any, found: list[bytes]) -> None:
    assert values(Predicate("offset", op, value)) == found


def test_all_conditions_hold() -> None:
    assert values(Predicate("offset", ">", 0), Predicate("offset", "<", 3)) == [b"1", b"2"]
    assert values(Predicate("topic", "=", "U")) == []


def test_a_comparison_with_null_is_not_met() -> None:
    assert values(Predicate("tags", "=", "x")) == []


def test_repeats_are_left_out() -> None:
    assert values(repeats={QUEUE: ((1, 3),)}) == [b"0", b"3"]
    assert values(Predicate("offset", ">", 0), repeats={QUEUE: ((3, 9),)}) == [b"1", b"2"]
    assert values() == [b"0", b"1", b"2", b"3"]
