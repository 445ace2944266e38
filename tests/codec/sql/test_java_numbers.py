"""Java's numbers in SQL92 expressions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.sql.java_numbers import (
    INTEGER_MAX,
    LONG_MAX,
    NotANumber,
    compare_doubles,
    read_double,
    read_whole,
)


class TestJavaNumbers:
    @pytest.mark.parametrize(
        "text", ["", "+", "-", " 1", "1 ", "1_0", "1.0", "0x1", "1L", "--1", "2147483648",
                 "-2147483649", "\U0001d7d3", "9" * 5_000],
    )  # fmt: skip
    def test_no_integers(self, text: str) -> None:
        with pytest.raises(NotANumber):
            read_whole(text, INTEGER_MAX)

    @given(st.integers(-(2**64), 2**64), st.sampled_from((INTEGER_MAX, LONG_MAX)))
    def test_integers(self, number: int, limit: int) -> None:
        for text in (str(number), f"{number:+d}", f"{number:+060d}"):
            if -limit - 1 <= number <= limit:
                assert read_whole(text, limit) == number
            else:
                with pytest.raises(NotANumber):
                    read_whole(text, limit)

    @pytest.mark.parametrize(
        "text", ["", ".", "e5", "1e", "nan", "inf", "infinity", "1_0", "1,5", "0x1", "1 2",
                 "\u0661", "1dd", "+-1", "0x.p1", "NaNd"],
    )  # fmt: skip
    def test_no_doubles(self, text: str) -> None:
        with pytest.raises(NotANumber):
            read_double(text)

    @given(st.floats(allow_nan=False))
    def test_doubles(self, number: float) -> None:
        text = repr(number).replace("inf", "Infinity")
        assert read_double(f"\t {text}\n") == number
        assert math.copysign(1, read_double(text)) == math.copysign(1, number)
        if math.isfinite(number):
            assert read_double(text + "F") == number
            assert read_double(number.hex()) == number

    def test_doubles_at_the_edge(self) -> None:
        assert read_double("0x1p99999") == math.inf
        assert read_double("-1e999") == -math.inf
        assert math.isnan(read_double("-NaN"))

    def test_order(self) -> None:
        ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
        for one, left in enumerate(ordered):
            for other, right in enumerate(ordered):
                assert compare_doubles(left, right) == (one > other) - (one < other)
