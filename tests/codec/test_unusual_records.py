"""Records that need a closer look are found, whatever is around them; both backends alike."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec import record_reasons as reasons
from broker_core.errors import MalformedRecord
from tests.codec.codec_backends import BACKENDS, backend_name, batch_of

SYS_FLAG_AT, PREPARED_AT = 36, 76


@pytest.fixture(params=BACKENDS, ids=backend_name)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def run_of(*bodies: bytes) -> tuple[bytearray, list[int]]:
    """Template records, and where each begins."""
    batch = batch_of(*bodies)
    out = bytearray(1 << 20)
    _, end = BACKENDS[0].encode_batch(batch, 0, bytearray(8), 0, out, 0, len(out), -1)
    starts, at = [], 0
    while at < end:
        starts.append(at)
        at += struct.unpack_from(">i", out, at)[0]
    return out[:end], starts


def test_plain_records_are_passed_by(codec: ModuleType) -> None:
    run, starts = run_of(b"a", b"b" * 3_000, b"")
    assert codec.find_unusual(bytes(run), 0, 4_000) == -1
    assert codec.find_unusual(bytes(run), len(run), 4_000) == -1
    assert codec.find_unusual(b"", 0, 0) == -1
    assert codec.find_unusual(bytes(run), 0, 1_000) == starts[1]
    assert codec.find_unusual(bytes(run), starts[2], 1_000) == -1


@pytest.mark.parametrize("flag", [0x04, 0x08, 0x0C, 0x10, 0x20])
def test_flags(codec: ModuleType, flag: int) -> None:
    run, starts = run_of(b"a", b"b", b"c")
    struct.pack_into(">i", run, starts[1] + SYS_FLAG_AT, flag)
    assert codec.find_unusual(bytes(run), 0, 4_000) == starts[1]
    assert codec.find_unusual(bytes(run), starts[2], 4_000) == -1


@pytest.mark.parametrize("prepared", [1, -1, 1 << 62])
def test_outcomes_of_transactions(codec: ModuleType, prepared: int) -> None:
    run, starts = run_of(b"a", b"b")
    struct.pack_into(">q", run, starts[1] + PREPARED_AT, prepared)
    assert codec.find_unusual(bytes(run), 0, 4_000) == starts[1]


@pytest.mark.parametrize(
    ("size", "reason"),
    [(90, reasons.SIZE_TOO_SMALL), (-5, reasons.SIZE_TOO_SMALL), (9_999, reasons.SIZE_PAST_LIMIT)],
)
def test_sizes_that_do_not_add_up(codec: ModuleType, size: int, reason: str) -> None:
    run, starts = run_of(b"a", b"b")
    struct.pack_into(">i", run, starts[1], size)
    with pytest.raises(MalformedRecord, match=reason) as caught:
        codec.find_unusual(bytes(run), 0, 4_000)
    assert caught.value.where == starts[1] if hasattr(caught.value, "where") else True
    with pytest.raises(MalformedRecord, match=reasons.HEADER_CUT):
        codec.find_unusual(bytes(run[:50]), 0, 4_000)


@pytest.mark.parametrize(("start", "size_max"), [(-1, 1), (5, 1), (0, -1)])
def test_ranges(codec: ModuleType, start: int, size_max: int) -> None:
    with pytest.raises(ValueError, match=reasons.BAD_RANGE):
        codec.find_unusual(b"abc", start, size_max)


def outcome(codec: ModuleType, *arguments: Any) -> Any:
    try:
        return codec.find_unusual(*arguments)
    except (MalformedRecord, ValueError) as error:
        return type(error).__name__, str(error)


@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=4),
    size_max=st.integers(0, 600),
    cut=st.integers(0, 200),
)
def test_both_backends_agree(
    bodies: list[bytes], changes: list[tuple[int, int]], size_max: int, cut: int
) -> None:
    run, starts = run_of(*bodies)
    for at, value in changes:
        run[at % len(run)] = value
    data = bytes(run[: max(len(run) - cut, 0)])
    for start in (0, *starts):
        native, python = (outcome(codec, data, start, size_max) for codec in BACKENDS)
        assert native == python
