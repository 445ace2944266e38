"""Trees of SQL92 expressions; their results: `test_filter.py`."""

from __future__ import annotations

import pytest

from broker_core.codec.sql.tree import DEPTH_MAX, parse_sql
from broker_core.errors import InvalidSubscription


def test_and_binds_more_than_or() -> None:
    root = parse_sql("a = 1 OR b = 2 AND c = 3").root
    assert root.kind == "OR"
    assert [one.kind for one in root.operands] == ["=", "AND"]
    grouped = parse_sql("(a = 1 OR b = 2) AND c = 3").root
    assert [one.kind for one in grouped.operands] == ["OR", "="]


def test_not_in_is_not_the_negation_of_in() -> None:
    listed, negated = parse_sql("a NOT IN ('x')").root, parse_sql("NOT (a IN ('x'))").root
    assert (listed.kind, listed.negated) == ("IN", True)
    assert negated.kind == "NOT"
    assert not negated.operands[0].negated


def test_longer_expressions_cost_more() -> None:
    costs = [parse_sql(" OR ".join(["a = 1"] * count)).cost for count in (1, 2, 10)]
    assert costs == sorted(set(costs))


def test_logical_values() -> None:
    assert parse_sql("TRUE").root.is_logical
    assert parse_sql("a IS NULL").root.is_logical
    assert parse_sql("a = 1").root.is_logical


@pytest.mark.parametrize(
    "expression", ["", "a =", "a 1", "(a = 1", "a = 1)", "IN ('x')", "a IN ()"]
)
def test_refused(expression: str) -> None:
    with pytest.raises(InvalidSubscription, match="SQL92 expression"):
        parse_sql(expression)


def test_depth_is_limited() -> None:
    parse_sql("NOT " * (DEPTH_MAX // 2) + "TRUE")
    with pytest.raises(InvalidSubscription):
        parse_sql("(" * (2 * DEPTH_MAX) + "TRUE" + ")" * (2 * DEPTH_MAX))
