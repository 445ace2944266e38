"""Large columns are in pooled memory, which is never reused while a reference to it exists."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from random import Random
from typing import Any

import numpy as np
import pytest

from broker_core.codec.records import column_names as names
from broker_core.codec.records.arrow_columns import to_arrow
from broker_core.errors import CorruptRecord
from tests.codec.codec_backends import PURE_PYTHON, batch_of, column, encode_all

native = pytest.importorskip(
    "broker_core.codec.native._native",
    reason="the native codec is not built: python setup.py build_ext --inplace",
)

EVERYTHING = 0x7FFF | names.MICROS
ROWS = 9_000
IDLE_BYTES_MAX = 32 << 20


@functools.lru_cache(maxsize=4)
def large_log(seed: int) -> tuple[bytes, bytes]:
    """A log whose every column takes more than 32 KiB, and its units."""
    rng = Random(seed)
    batch = batch_of(
        *(rng.randbytes(rng.randrange(60)) for _ in range(ROWS)),
        tags=column(*(b"TagA" * rng.randrange(9) for _ in range(ROWS))),
        keys=column(*(b"k%d" % rng.randrange(10**9) for _ in range(ROWS))),
        properties=column(*(b"UNIQ_KEY\x01%016d\x02" % row for row in range(ROWS))),
    )
    log = encode_all(PURE_PYTHON, batch, 0)
    found = PURE_PYTHON.scan_records(log, 0, len(log), 0, True, b"", b"")
    return log, found.queues[b"TopicTest", 0][1]


def decode(seed: int) -> dict[str, Any]:
    """Every column by the native codec."""
    log, units = large_log(seed)
    columns: dict[str, Any] = native.decode_columns(
        [(0, log)], units, 0, 0, b"TopicTest", EVERYTHING, True
    )
    return columns


@functools.lru_cache(maxsize=4)
def expected(seed: int) -> dict[str, Any]:
    """Every column by the twin."""
    log, units = large_log(seed)
    columns: dict[str, Any] = PURE_PYTHON.decode_columns(
        [(0, log)], units, 0, 0, b"TopicTest", EVERYTHING, True
    )
    return columns


def plain(columns: dict[str, Any]) -> dict[str, Any]:
    """The same as bytes."""
    return {
        name: tuple(None if part is None else bytes(part) for part in parts)
        if isinstance(parts, tuple)
        else bytes(parts)
        for name, parts in columns.items()
    }


def test_large_columns_are_those_of_the_twin() -> None:
    for seed in (1, 2, 1):
        assert decode(seed) == plain(decode(seed)) == expected(seed)


def test_columns_that_are_held_stay_as_they_are() -> None:
    held = [decode(1) for _ in range(3)]
    view = np.frombuffer(held[0]["queue_offset"], np.int64)[10:20]
    table = to_arrow(held.pop(0), ROWS)
    body = table.column("value")[5:9]
    expected_body = body.to_pylist()
    del table
    for _ in range(5):
        decode(2)
    assert plain(held[0]) == plain(held[1]) == expected(1)
    assert body.to_pylist() == expected_body
    assert view.tolist() == list(range(10, 20))


def test_columns_are_read_only() -> None:
    data, offsets = decode(1)["value"]
    for buffer in (data, offsets):
        with pytest.raises(TypeError), memoryview(buffer) as view:
            view[0] = 1


def test_columns_may_be_freed_in_any_order() -> None:
    rng = Random(3)
    held: list[tuple[int, dict[str, Any]]] = []
    for _ in range(40):
        seed = rng.choice((1, 2))
        held.append((seed, decode(seed)))
        rng.shuffle(held)
        del held[rng.randrange(1, 6) :]
        for seed, columns in held:
            name = rng.choice(sorted(columns))
            assert plain({name: columns[name]}) == {name: expected(seed)[name]}


def test_damage_gives_the_memory_back() -> None:
    log, units = large_log(1)
    broken = bytearray(log)
    broken[-30] ^= 1
    for _ in range(3):
        with pytest.raises(CorruptRecord):
            native.decode_columns([(0, bytes(broken))], units, 0, 0, None, EVERYTHING, True)
    assert plain(decode(1)) == expected(1)


def test_small_values_of_large_records_take_little_memory() -> None:
    batch = batch_of(
        *(b"x" * 40,) * 2_000,
        properties=column(*(b"note\x01" + b"n" * 1_000 + b"\x02",) * 2_000),
    )
    log = encode_all(native, batch, 0)
    found = native.scan_records(log, 0, len(log), 0, True, b"", b"")
    units = found.queues[b"TopicTest", 0][1]
    for _ in range(2):
        columns = native.decode_columns([(0, log)], units, 0, 0, None, names.VALUE, True)
        assert columns["value"][0] == b"x" * 80_000
        del columns
    gc.collect()
    tracemalloc.start()
    columns = native.decode_columns([(0, log)], units, 0, 0, None, names.VALUE, True)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(columns["value"][0]) == 80_000
    assert kept < 400_000


def test_idle_memory_is_bounded() -> None:
    """Sixty reads held together and then dropped: most of their memory is returned."""
    decode(1)
    gc.collect()
    tracemalloc.start()
    held = [decode(1) for _ in range(60)]
    most, _ = tracemalloc.get_traced_memory()
    held.clear()
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most > IDLE_BYTES_MAX + (8 << 20)
    assert left <= IDLE_BYTES_MAX + (1 << 20)


def test_a_buffer_is_writable_and_its_memory_is_used_again() -> None:
    buffer = native.new_buffer(IDLE_BYTES_MAX // 4)
    assert (len(buffer), buffer.readonly) == (IDLE_BYTES_MAX // 4, False)
    buffer[:] = bytes(range(256)) * (len(buffer) // 256)
    view = buffer.toreadonly()[100:200]
    del buffer
    # A part keeps all of it.
    others = [native.new_buffer(IDLE_BYTES_MAX // 4) for _ in range(3)]
    for other in others:
        other[:] = bytes(len(other))
    assert bytes(view) == bytes(range(100, 200))
    assert len(native.new_buffer(7)) == 7


def test_the_memory_of_a_buffer_serves_columns_too() -> None:
    address = np.frombuffer(native.new_buffer(1 << 20), np.uint8).ctypes.data
    gc.collect()
    again = np.frombuffer(native.new_buffer(1 << 20), np.uint8).ctypes.data
    assert address == again
