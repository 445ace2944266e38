"""Units of a pull and runs of its response: limits, filters, gaps, damage; both backends alike."""

from __future__ import annotations

import random
import struct
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_names import PHYSICAL_OFFSET, VALUE
from broker_core.codec.records.record_layout import ELSEWHERE, PRE_BLANK_SIZE, UNIT, wire_place
from broker_core.errors import CorruptRecord, MalformedRecord
from tests.codec.codec_backends import BACKENDS, batch_of

TOPIC = b"TopicTest"


def stored(offset: int, position: int, body: bytes = b"body") -> bytes:
    """One record as a log has it."""
    out = bytearray(4096)
    batch = batch_of(body)
    next_offsets = struct.pack("=q", offset)
    _, end = BACKENDS[0].encode_batch(
        batch, 0, bytearray(next_offsets), 1_700_000_000_000, out, 0, len(out), position
    )
    return bytes(out[:end])


def test_runs_break_at_gaps_and_end_at_the_limit(codec: ModuleType) -> None:
    places = [(5, 9_000), (6, 100), (9, 70_000), (10, 300), (11, 0)]
    records = [stored(offset, place, b"%d" % offset) for offset, place in places]
    data = b"".join(records)
    runs = codec.cut_wire_runs(data, 5, 11)
    sizes = [len(record) for record in records]
    assert [run[:4] for run in runs] == [
        (5, 2, 0, sum(sizes[:2])),
        (9, 2, sum(sizes[:2]), sum(sizes[:4])),
    ]
    first, second = (list(UNIT.iter_unpack(run[4])) for run in runs)
    base = wire_place(9)
    assert first[0] == (wire_place(5), sizes[0], 0)
    assert second == [(base, sizes[2], 0), (base + sizes[2], sizes[3], 0)]
    # The codec decodes them from there, wherever their log had them.
    columns = codec.decode_columns(
        [(base, memoryview(data)[runs[1][2] : runs[1][3]])], runs[1][4], 9, 0, TOPIC,
        VALUE | PHYSICAL_OFFSET, 1 | ELSEWHERE,
    )  # fmt: skip
    assert bytes(columns["value"][0]) == b"910"
    assert list(memoryview(columns["physical_offset"]).cast("B").cast("q")) == [70_000, 300]
    with pytest.raises(CorruptRecord):
        codec.decode_columns([(base, data[runs[1][2] :])], runs[1][4], 9, 0, TOPIC, VALUE, 1)
    assert codec.cut_wire_runs(data, 0, 5) == []
    assert codec.cut_wire_runs(b"", 0, 5) == []


def test_damaged_responses(codec: ModuleType) -> None:
    good = stored(5, 0)
    for data, start, at, reason in (
        (good + good[:50], 5, len(good), reasons.HEADER_CUT),
        (good[:-1], 5, 0, reasons.SIZE_PAST_LIMIT),
        (bytes(200), 5, 0, reasons.SIZE_TOO_SMALL),
        (good, 6, 0, reasons.QUEUE_GAP),
        (good + good, 5, len(good), reasons.QUEUE_GAP),
    ):
        with pytest.raises(MalformedRecord) as caught:
            codec.cut_wire_runs(data, start, 1 << 40)
        assert (caught.value.position, caught.value.reason) == (at, reason)


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except MalformedRecord as error:
        return error.args


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
@given(st.integers(0, 2**32 - 1))
def test_both_backends_cut_the_same(seed: int) -> None:
    rng = random.Random(seed)
    offset, pieces = rng.randrange(3), []
    for _ in range(rng.randrange(6)):
        offset += rng.choice((0, 1, 1, 1, 7, 1 << 60))
        pieces.append(stored(min(offset, 2**63 - 1), rng.randrange(9_000)))
    data = bytearray(b"".join(pieces))
    if data and rng.random() < 0.5:
        data[rng.randrange(len(data))] = rng.randrange(256)
        del data[len(data) - rng.randrange(2) * 3 :]
    arguments = (bytes(data), rng.randrange(2), rng.choice((2, 9, 1 << 62)))
    python, native = (outcome(codec.cut_wire_runs, *arguments) for codec in BACKENDS)
    assert python == native


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
    rows = units((1, 9, 5), (2, 9, -7), (3, 9, 5), (4, 9, 5), (5, PRE_BLANK_SIZE, 5), (6, 9, 5))
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
            st.sampled_from((0, 1, 50, -4, PRE_BLANK_SIZE)),
            st.sampled_from((0, 5, -7, 2**40 + 5, -(2**63))),
        ),
        max_size=12,
    ),
    st.integers(0, 5),
    st.integers(-1, 13),
    st.integers(0, 300),
    st.one_of(st.none(), st.sampled_from(((), (5,), (-7, 0)))),
)
def test_both_backends_choose_the_same(
    rows: list[tuple[int, int, int]],
    start: int,
    count: int,
    size: int,
    codes: tuple[int, ...] | None,
) -> None:
    wanted = None if codes is None else array("i", codes)
    python, native = (c.choose_units(units(*rows), start, count, size, wanted) for c in BACKENDS)
    assert python == native
