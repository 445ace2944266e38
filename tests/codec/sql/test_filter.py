"""SQL92 filters: equal to a plain judge, to what Apache 5.5.0 was seen to do, and hard to abuse."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.message_properties import decode_properties, encode_properties
from broker_core.codec.sql.filter import SqlFilter, sql_problem
from broker_core.codec.sql.tokens import SQL_SIZE_MAX, TOKENS_MAX
from broker_core.codec.sql.tree import DEPTH_MAX, OPERATORS_MAX, TEXTS_MAX
from broker_core.errors import InvalidSubscription
from tests.codec.sql_cases import (
    DOUBTS,
    MESSAGES,
    NAMES,
    REFUSED,
    REFUSED_BY_APACHE,
    REFUSED_BY_US,
    judged,
    random_tree,
    rendered,
)
from tests.cost_growth import FACTOR, GROWTH_MAX, growth

SEEN = json.loads((Path(__file__).parent / "sql_seen_on_apache.json").read_text())


def shortened(text: str) -> str:
    """Without its middle, which is the same all along."""
    kept = len(text) // FACTOR // 2
    return text[:kept] + text[-kept:]


values = st.one_of(
    st.sampled_from(("red", "5", "5.0", "-7", "true", "NaN", "1e3", "", " 5", "2147483648")),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.text(max_size=8).filter(lambda text: not set(text) & {"\x01", "\x02"}),
)
messages = st.dictionaries(st.sampled_from(NAMES), values, max_size=len(NAMES)).map(
    lambda found: {name: value for name, value in found.items() if value}
)


@given(st.integers(0, 2**32), st.integers(0, 4), st.lists(messages, max_size=4))
def test_a_filter_agrees_with_the_reference_evaluator(
    seed: int, depth: int, tried: list[dict[str, str]]
) -> None:
    source = random.Random(seed)
    tree = random_tree(source, depth)
    text = rendered(tree, source)
    compiled = SqlFilter(text)
    for message in (*MESSAGES, *tried):
        assert compiled.matches(message) is judged(tree, message), (text, message)


@pytest.mark.parametrize("expression", [text for text, _ in DOUBTS])
def test_expressions_that_apache_evaluates_in_its_own_way(expression: str) -> None:
    """`tests/interop/test_sql_filters.py` asks Apache itself."""
    compiled = SqlFilter(expression)
    common = {"UNIQ_KEY": "1", "WAIT": "true"}
    found = [n for n, message in enumerate(MESSAGES) if compiled.matches({**common, **message})]
    assert found == SEEN[expression]


@pytest.mark.parametrize("expression", [*REFUSED, *REFUSED_BY_US])
def test_refused(expression: str) -> None:
    problem = sql_problem(expression)
    assert problem is not None
    assert len(problem) < 200
    with pytest.raises(InvalidSubscription) as raised:
        SqlFilter(expression)
    assert str(raised.value) == problem


@pytest.mark.parametrize("expression", REFUSED_BY_APACHE)
def test_zero_is_a_number(expression: str) -> None:
    assert sql_problem(expression) is None


def test_errors_say_where_and_why() -> None:
    assert sql_problem("a = 1 AND b LIKE 'x'") == (
        "SQL92 expression: the expression is complete before this (at character 13, \"LIKE 'x'\")"
    )
    assert "at its end" in (sql_problem("a >") or "")
    assert "IS NULL" in (sql_problem("a = NULL") or "")
    assert "single quotes" in (sql_problem('a = "x"') or "")


@given(messages, st.binary(max_size=20))
def test_property_texts_are_read_as_everywhere(message: dict[str, str], junk: bytes) -> None:
    for text in (encode_properties(message), encode_properties(message) + junk, junk):
        compiled = SqlFilter("a = '5' OR color <> 'red' OR b IS NULL")
        assert compiled.accepts(text) is compiled.matches(decode_properties(text))


def test_a_later_pair_wins_and_empty_ones_do_not_count() -> None:
    assert SqlFilter("a = '2'").accepts(b"a\x011\x02a\x012\x02a\x01\x02")
    assert SqlFilter("a IS NULL").accepts(b"a\x01\x02\x01x\x02b")
    assert SqlFilter("a = 'x\x01y'").accepts(b"a\x01x\x01y")
    assert SqlFilter("a = '\ufffd'").accepts(b"a\x01\xff\x02")


class TestLimits:
    def test_at_and_beyond(self) -> None:
        def check(fits: str, too_much: str, reason: str) -> None:
            assert sql_problem(fits) is None
            assert reason in (sql_problem(too_much) or "")

        filler = " " * (SQL_SIZE_MAX - 5)
        check(f"a = 1{filler}", f"a = 1{filler} ", "characters")
        check("(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX, "(" * 100 + "a" + ")" * 100, "deep")
        check("NOT " * 50 + "TRUE", "NOT " * 70 + "TRUE", "deep")
        check("a > " + "-" * 50 + "1", "a > " + "-" * 70 + "1", "deep")
        check("a" + " IS NULL" * 50, "a" + " IS NULL" * 70, "deep")
        check("a" + " CONTAINS 'x'" * 50, "a" + " CONTAINS 'x'" * 70, "deep")
        ors = " OR a=1" * (OPERATORS_MAX // 2 - 1)
        check("a=1" + ors, "a=1" + ors * 2, "operators")
        texts = ",".join(["''"] * TEXTS_MAX)
        check(f"a IN ({texts})", f"a IN ({texts},'')", "strings")
        assert "tokens" in (sql_problem("(" * (TOKENS_MAX + 1)) or "")

    def test_a_long_chain_is_not_a_deep_one(self) -> None:
        compiled = SqlFilter(" AND ".join(f"a <> '{number}'" for number in range(300)))
        assert compiled.matches({"a": "300"})
        assert not compiled.matches({"a": "299"})
        assert compiled.cost > 600

    @pytest.mark.parametrize(
        "hostile",
        [
            "'" * (SQL_SIZE_MAX - 1),
            "a = '" + "''" * (SQL_SIZE_MAX // 2 - 4),
            "/*" + "*" * (SQL_SIZE_MAX - 2),
            "/*" + "/*" * (SQL_SIZE_MAX // 2 - 1),
            "-" * SQL_SIZE_MAX,
            "-" * (SQL_SIZE_MAX - 1) + "\n",
            "--\n" * (SQL_SIZE_MAX // 3),
            "1" * SQL_SIZE_MAX,
            "1" * (SQL_SIZE_MAX - 1) + "e",
            "a = 1e" + "9" * (SQL_SIZE_MAX - 6),
            "." * SQL_SIZE_MAX,
            "a" * SQL_SIZE_MAX + " ",
            "(" * SQL_SIZE_MAX,
            "NOT " * (SQL_SIZE_MAX // 4),
            "a=" * (SQL_SIZE_MAX // 2),
            "\ud800 = 1",
            "a = 1\x00",
            "__import__('os').system('true')",
            "a = 1 OR eval('1')",
        ],
        ids=lambda text: text[:12],
    )
    def test_hostile_expressions_are_refused_in_linear_time(self, hostile: str) -> None:
        problem = sql_problem(hostile)
        assert problem is not None
        assert len(problem) < 200
        if len(hostile) > 2 * FACTOR:
            small = shortened(hostile)
            assert growth(lambda: sql_problem(small), lambda: sql_problem(hostile)) < GROWTH_MAX

    @pytest.mark.parametrize(
        "value", ["1" * 32_000 + "x", "0" * 32_000 + "7", " " * 32_000, "1." + "0" * 31_000 + "e",
                  "0x" + "f" * 32_000, "\u0661" * 10_000, "+" * 32_000, "1e" + "9" * 32_000,
                  "." * 32_000, "a" * 32_000],
        ids=lambda text: text[:6],
    )  # fmt: skip
    def test_hostile_values_are_read_in_linear_time(self, value: str) -> None:
        small = shortened(value)
        for sql in ("a > 1", "a > 1.0", "a > b", "a = 5", "a BETWEEN 1 AND 2.5"):
            matches = SqlFilter(sql).matches
            found = growth(
                lambda matches=matches: matches({"a": small, "b": small}),
                lambda matches=matches: matches({"a": value, "b": value}),
            )
            assert found < GROWTH_MAX, (sql, found)

    def test_a_search_for_nearly_the_value_takes_linear_time(self) -> None:
        """What is searched grows with the value: a naive search takes the square."""

        def search(size: int) -> Callable[[], object]:
            matches = SqlFilter("a CONTAINS '" + "a" * (size // 16) + "b'").matches
            value = {"a": "a" * size}
            assert not matches(value)
            return lambda: matches(value)

        assert growth(search(1_000), search(1_000 * FACTOR)) < GROWTH_MAX
