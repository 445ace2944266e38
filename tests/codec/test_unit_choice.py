"""Choosing units for a pull: limits, filters, gaps; both backends alike."""

from __future__ import annotations

import struct
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.codec_backends import BACKENDS, backend_name

UNIT = struct.Struct(">qiq")
PRE_BLANK = 0x7FFFFFFF


@pytest.fixture(params=BACKENDS, ids=backend_name)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def units(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(UNIT.pack(*row) for row in rows)


def test_limits_and_the_first_one(codec: ModuleType) -> None:
    rows = units((100, 50, 0), (150, 50, 0), (200, 50, 0))
    assert codec.choose_units(rows, 0, 32, 1000, None) == ([(0, 3)], 3, False, False)
    assert codec.choose_units(rows, 0, 2, 1000, None) == ([(0, 2)], 2, False, False)
    assert codec.choose_units(rows, 0, 32, 149, None) == ([(0, 2)], 2, False, False)
    # One message is always returned, however large.
    assert codec.choose_units(rows, 0, 32, 1, None) == ([(0, 1)], 1, False, False)
    assert codec.choose_units(b"", 0, 32, 1, None) == ([], 0, False, False)


def test_filters_and_gaps(codec: ModuleType) -> None:
    rows = units((1, 9, 5), (2, 9, -7), (3, 9, 5), (4, 9, 5), (5, PRE_BLANK, 5), (6, 9, 5))
    wanted = array("i", (5,))
    assert codec.choose_units(rows, 3, 32, 999, wanted) == ([(2, 4), (5, 6)], 6, False, True)
    assert codec.choose_units(rows, 0, 32, 999, array("i", (-7,))) == ([(1, 2)], 6, True, True)
    # Due times of delayed messages are longer than 32 bits; only the low ones are compared.
    wide = units((1, 9, (3 << 32) + 5))
    assert codec.choose_units(wide, 0, 1, 1, wanted) == ([(0, 1)], 1, False, False)
    with pytest.raises(ValueError, match="20 bytes"):
        codec.choose_units(rows[:-1], 0, 1, 1, None)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 9),
            st.sampled_from((0, 1, 50, -4, PRE_BLANK)),
            st.sampled_from((0, 5, -7, 2**40 + 5, -(2**63))),
        ),
        max_size=12,
    ),
    st.integers(0, 5),
    st.integers(-1, 13),
    st.integers(0, 300),
    st.one_of(st.none(), st.sampled_from(((), (5,), (-7, 0)))),
)
def test_both_backends_are_one(
    rows: list[tuple[int, int, int]],
    start: int,
    count: int,
    size: int,
    codes: tuple[int, ...] | None,
) -> None:
    wanted = None if codes is None else array("i", codes)
    python, native = (c.choose_units(units(*rows), start, count, size, wanted) for c in BACKENDS)
    assert python == native
