"""The native codec and its pure-Python twin are one codec: same results, errors and written bytes.

Every function of the contract runs on both with the same good, damaged and absurd input. The
outcome (result, or exception with its arguments) and every buffer it may write to are compared.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.codec import record_loops as python
from broker_core.codec import record_reasons
from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.record_scan import Scan
from broker_core.errors import CorruptRecord, MalformedBatch, MalformedRecord
from tests.codec.codec_backends import HOST, HOST_V6, batch_of, column
from tests.codec.codec_inputs import (
    DELAYS_MS,
    GROUP_TOPIC,
    INT32S,
    INT64S,
    TOPICS,
    batches,
    damaged,
)

native = pytest.importorskip(
    "broker_core.codec._native",
    reason="the native codec is not built: python setup.py build_ext --inplace",
)

STORE_TIME = 1700000000123
ALL_COLUMNS = (1 << 15) - 1
MICROS = 1 << 20
EXPECTED_ERRORS = (
    MalformedBatch, MalformedRecord, CorruptRecord, ValueError, TypeError, OverflowError,
    BufferError,
)  # fmt: skip


# The cheap properties with the most branches behind them get more examples than the rest.
MORE = settings(max_examples=3 * settings().max_examples)


def outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """What a call did, comparable between backends."""
    try:
        result = function(*args)
    except EXPECTED_ERRORS as error:
        # Python itself words these two; everything else carries one of our reasons.
        if type(error) in (TypeError, BufferError):
            return (type(error),)
        return (type(error), error.args, vars(error))
    if isinstance(result, Scan):
        # Queues are listed in the order of their first unit.
        return (tuple(result), list(result.queues))
    return ("returned", type(result), result)


def same(name: str, *args: Any) -> tuple[Any, ...]:
    """Outcome of the contract function `name`, equal on both backends.

    A bytearray or numpy array among the arguments is an output: each backend gets its own copy.
    """
    outcomes = []
    for backend in (python, native):
        copies = [arg.copy() if isinstance(arg, bytearray | np.ndarray) else arg for arg in args]
        result = outcome(getattr(backend, name), *copies)
        written = [bytes(copy) for copy in copies if isinstance(copy, bytearray | np.ndarray)]
        outcomes.append((result, written))
    assert outcomes[0] == outcomes[1]
    return outcomes[0][0]


def records_of(batch: ColumnBatch, position: int = 0) -> bytes:
    """Records of the good rows of a batch, up to the first refused one."""
    out = bytearray(1 << 17)
    offsets = np.zeros(len(batch.queues), np.int64)
    rows = batch.count
    try:
        native.measure_batch(batch)
    except MalformedBatch as error:
        rows = error.row
    good = batch._replace(count=rows)
    _, end = native.encode_batch(good, 0, offsets, STORE_TIME, out, 0, len(out), position)
    return bytes(out[:end])


@MORE
@given(batches(), st.data())
def test_encoding_good_batches(batch: ColumnBatch, data: st.DataObject) -> None:
    measured = same("measure_batch", batch)
    total = measured[2][0] if measured[0] == "returned" else 4000
    out_start = data.draw(st.integers(0, 3))
    slack = data.draw(st.sampled_from((8, 7, 0, -100, -400)))
    out_limit = max(out_start + total + slack, out_start)
    offsets = np.arange(len(batch.queues), dtype=np.int64) * 100
    first_row = data.draw(st.integers(0, batch.count))
    position = data.draw(st.sampled_from((-1, 0, 4096, 2**62)))
    out = bytearray(b"\xee") * (out_limit + 5)
    same("encode_batch", batch, first_row, offsets, STORE_TIME, out, out_start, out_limit, position)


def _damaged_column(draw: st.DrawFn, count: int) -> Any:
    """A column of `count` rows with something wrong in it."""
    offsets = np.sort(np.array(draw(st.lists(st.integers(0, 30), min_size=count + 1,
                                             max_size=count + 1)), np.int64))  # fmt: skip
    data = draw(st.sampled_from((b"text" * 10, b"0123456\x01" * 5, b"\x02" + bytes(39), b"x" * 20)))
    for _ in range(draw(st.integers(0, 2))):
        offsets[draw(st.integers(0, count))] = draw(st.sampled_from((0, -1, 15, 39, 40, 41, 2**40)))
    width = draw(st.sampled_from((4, 4, 4, 8, 8, 8, 0, 2, -4, 2**70)))
    if width == 4:
        offsets = offsets.astype(np.int32)
    short = draw(st.sampled_from((0, 0, 0, 1, 7)))
    raw = offsets.tobytes()
    return (data, raw[: len(raw) - short], width)


@st.composite
def _bad_batches(draw: st.DrawFn) -> ColumnBatch:
    """A good batch with one to three fields replaced by questionable ones."""
    batch = draw(batches(rows_max=5))
    wrong: dict[str, Any] = {
        "count": st.sampled_from((-1, 6, 2**62, 2**63 - 1, 2**70)),
        "queues": st.sampled_from(
            ((), ((b"", 0),), ((b"x" * 256, 0),), ((b"a b", 0),), ((b"T\n", 0),), ((b"T", -1),),
             ((b"T", 2**31),), ((b"T", 2**70),), (("T", 0),), ((b"T", 0), (b"U.", 0)))
        ),
        "queue_index": st.sampled_from(
            (np.array([0, 9, 0, 0, 0], np.int32), np.array([-1] * 5, np.int32), b"", b"\0" * 19)
        ),
        "flag": st.sampled_from((2**31, -(2**31) - 1, 2**70)),
        "sys_flag": st.sampled_from((2**31, -(2**31) - 1)),
        "born_timestamp": st.sampled_from((2**63, -(2**63) - 1, b"", b"\0" * 39, np.zeros(5))),
        "born_host": st.sampled_from((b"", HOST[:7], HOST_V6 + b"x")),
        "store_host": st.sampled_from((b"", HOST[:7], HOST_V6 + b"x")),
        "reconsume_times": st.sampled_from((2**31, 1 << 64)),
        "prepared_offset": st.sampled_from((2**63, -(2**63) - 1)),
    }  # fmt: skip
    columns = ("body", "tags", "keys", "properties")
    for name in draw(st.lists(st.sampled_from((*wrong, *columns * 3)), min_size=1, max_size=3)):
        value = _damaged_column(draw, batch.count) if name in columns else draw(wrong[name])
        batch = batch._replace(**{name: value})
        if batch.count < 0 or batch.count > 10:
            break
    return batch


@MORE
@given(_bad_batches(), st.integers(0, 6), st.sampled_from((-1, 0)))
def test_encoding_bad_batches(batch: ColumnBatch, first_row: int, position: int) -> None:
    same("measure_batch", batch)
    offsets = np.zeros(8, np.int64)
    out = bytearray(4096)
    same("encode_batch", batch, first_row, offsets, STORE_TIME, out, 0, len(out), position)


@pytest.mark.parametrize("size", [32766, 32767, 32768, 40000])
@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("name", ["tags", "keys", "properties"])
def test_property_text_around_its_limit(name: str, append_crc: bool, size: int) -> None:
    for text_size in (size - 26, size - 20, size - 6, size - 1, size):
        values = column(b"p" * text_size)
        batch = batch_of(b"b", append_crc=append_crc, **{name: values})
        same("measure_batch", batch)
        same("encode_batch", batch, 0, np.zeros(1, np.int64), 0, bytearray(33000), 0, 33000, 0)


def test_a_record_of_two_gibibytes() -> None:
    # The pages are never touched: measuring looks at offsets only.
    huge = np.zeros(2**31, np.uint8)
    for size in (2**31, 2**31 - 91 - 9 - 20, 2**31 - 1 - 91 - 9 - 20):
        offsets = np.array([0, size], np.int64)
        same("measure_batch", batch_of(b"", body=(huge, offsets, 8)))


@MORE
@given(st.data())
def test_runs(data: st.DataObject) -> None:
    batch = data.draw(batches())
    run = data.draw(damaged(records_of(batch, position=-1)))
    queue_count = data.draw(st.sampled_from((len(batch.queues), 0, 1)))
    position = data.draw(st.sampled_from((0, 1, 600, 4095, 2**40 + 3)))
    segment_size = data.draw(st.sampled_from((1 << 30, 4096, 900, 150, 100, 9, 1)))
    same("inspect_run", run, queue_count, position, segment_size)
    offsets = np.arange(queue_count, dtype=np.int64) * 50
    host = data.draw(st.sampled_from((batch.store_host, batch.store_host, HOST, b"", b"x" * 21)))
    out_limit = data.draw(st.sampled_from((1 << 14, len(run) + 8, len(run) + 7, 300, 0)))
    out = bytearray(b"\xee") * (out_limit + 3)
    run_start = data.draw(st.sampled_from((0, 0, min(len(run), 91))))
    same("relocate_run", run, run_start, offsets, STORE_TIME, host, out, 0, out_limit, position)


@MORE
@given(st.data())
def test_scans_and_single_records(data: st.DataObject) -> None:
    position = data.draw(st.sampled_from((0, 4096, 2**40)))
    log = records_of(data.draw(batches()), position)
    log += data.draw(st.sampled_from((b"", bytes(7), bytes(100), b"\0\0\0\x20\xcb\xd4\x31\x94")))
    log = data.draw(damaged(log))
    check_crc = data.draw(st.booleans())
    delays = data.draw(st.sampled_from((DELAYS_MS.tobytes(), b"", b"1234567")))
    group = data.draw(st.sampled_from((GROUP_TOPIC, b"TopicTest", b"")))
    found = same("scan_records", log, 0, len(log), position, check_crc, delays, group)
    limit = data.draw(st.integers(0, len(log)))
    start = data.draw(st.sampled_from((0, min(limit, 1), found[0][0], len(log) + 1)))
    same("scan_records", log, start, limit, position + start, check_crc, delays, group)
    same("check_record", log, start, limit, position + start, check_crc)
    same("check_record", log, 0, len(log), data.draw(st.sampled_from((position, -1))), check_crc)


def test_every_single_flipped_bit() -> None:
    batch = batch_of(
        b"hello", b"", queues=((b"SCHEDULE_TOPIC_XXXX", 1),),
        tags=column(b"TagA", "中".encode()), keys=column(b"k1 k2", b""),
        properties=column(b"UNIQ_KEY\x01U1\x02DELAY\x012", b""),
    )  # fmt: skip
    log = bytearray(records_of(batch))
    units = python.scan_records(bytes(log), 0, len(log), 0, True, DELAYS_MS, b"").queues[
        (b"SCHEDULE_TOPIC_XXXX", 1)
    ][1]
    for bit in range(len(log) * 8):
        log[bit // 8] ^= 1 << bit % 8
        for verify in (True, False):
            same("scan_records", bytes(log), 0, len(log), 0, verify, DELAYS_MS.tobytes(), b"")
            same("gather_records", [(0, bytes(log))], units, 0, verify)
        log[bit // 8] ^= 1 << bit % 8


@given(st.data())
def test_garbage(data: st.DataObject) -> None:
    prefix = data.draw(st.sampled_from((b"\0\0\0\x5b", b"\0\0\0\x7f", b"\x7f\xff\xff\xff", b"")))
    magic = data.draw(st.sampled_from((b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", bytes(4))))
    garbage = prefix + magic + data.draw(st.binary(max_size=200))
    same("scan_records", garbage, 0, len(garbage), 0, False, b"", b"")
    same("inspect_run", garbage, 2, 0, 1 << 20)
    same("relocate_run", garbage, 0, np.zeros(2, np.int64), 0, HOST, bytearray(512), 0, 512, 0)
    same("check_record", garbage, 0, len(garbage), 0, True)


def _pieces(draw: st.DrawFn, log: bytes, position: int) -> list[tuple[int, bytes]]:
    """The log cut into spans at arbitrary places, perhaps with one missing."""
    cuts = sorted({0, len(log), *draw(st.lists(st.integers(0, len(log)), max_size=3))})
    pieces = [(position + a, log[a:b]) for a, b in pairwise(cuts)]
    if pieces and draw(st.booleans()):
        # Records that cross a cut are in no piece; mostly keep the log in one.
        return [(position, log)]
    if pieces and draw(st.booleans()):
        del pieces[draw(st.integers(0, len(pieces) - 1))]
    return pieces


@st.composite
def _reads(draw: st.DrawFn) -> tuple[Any, ...]:
    """Spans, units, queue offset, queue id and topic; mostly those of one queue of a good log."""
    position = draw(st.sampled_from((0, 4096, 2**40)))
    log = records_of(draw(batches()), position)
    scan = python.scan_records(log, 0, len(log), position, True, DELAYS_MS, b"")
    queues = scan.queues or {(b"TopicTest", 0): (0, bytes(20))}
    (topic, queue_id), (first, units) = draw(st.sampled_from(list(queues.items())))
    skipped = draw(st.integers(0, len(units) // 20))
    units = units[skipped * 20 :]
    first += skipped
    if draw(st.integers(0, 3)) == 0:
        units = draw(damaged(units))
        units = units[: len(units) // 20 * 20] if draw(st.booleans()) else units
    if draw(st.integers(0, 3)) == 0:
        log = draw(damaged(log))
    # Now and then the reader asks for another queue, or from another offset.
    asked = draw(st.integers(0, 9))
    return (
        _pieces(draw, log, position),
        units,
        first + (asked == 0),
        draw(INT32S) if asked == 1 else draw(st.sampled_from((queue_id, -1))),
        draw(st.sampled_from(TOPICS)) if asked == 2 else draw(st.sampled_from((topic, None))),
    )


@MORE
@given(
    _reads(),
    st.one_of(
        st.just(ALL_COLUMNS), st.just(ALL_COLUMNS | MICROS), st.integers(0, ALL_COLUMNS), INT64S
    ),
    st.booleans(),
)
def test_reads_by_unit(reads: tuple[Any, ...], wanted: int, verify: bool) -> None:
    spans, units, queue_offset, queue_id, topic = reads
    same("gather_records", spans, units, queue_offset, verify)
    same("decode_columns", spans, units, queue_offset, queue_id, topic, wanted, verify)


@MORE
@given(
    entries=st.lists(st.tuples(INT32S | st.integers(0, 9), INT64S | st.integers(0, 9), INT64S)),
    header=st.tuples(INT64S, INT64S, INT64S, INT64S, st.integers(0, 5), INT32S | st.just(2)),
    slots=st.lists(INT32S, max_size=3),
    fresh=st.booleans(),
    hash_slots=st.sampled_from((1, 3, 5, 0, -1, 2**62)),
    entry_max=st.sampled_from((0, 1, 2, 6, 12, -1, 2**62)),
    start=st.sampled_from((0, 20, 40, 10, -20)),
    missing=st.sampled_from((0, 0, 0, 1)),
)
def test_index_entries(
    entries: list[tuple[int, int, int]], header: tuple[int, ...], slots: list[int], fresh: bool,
    hash_slots: int, entry_max: int, start: int, missing: int,
) -> None:  # fmt: skip
    packed = b"".join(
        b"".join(n.to_bytes(w, "big", signed=True) for n, w in zip(entry, (4, 8, 8), strict=True))
        for entry in entries
    )
    size = 40 + 4 * min(max(hash_slots, 0), 5) + 20 * min(max(entry_max, 0), 12)
    file = bytearray(size)
    if not fresh:
        widths = (8, 8, 8, 8, 4, 4, *(4 for _ in slots))
        numbers = zip((*header, *slots), widths, strict=True)
        filled = b"".join(n.to_bytes(w, "big", signed=True) for n, w in numbers)
        file[: len(filled)] = filled[:size]
    same("append_index_entries", file[: size - missing], hash_slots, entry_max, packed, start)
    same("append_index_entries", file, hash_slots, entry_max, packed + b"x" * missing, start)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)))
def test_hash_of_any_bytes(text: bytes) -> None:
    same("java_hash", text)


def test_hash_and_repair_of_every_short_sequence() -> None:
    """All pairs of bytes, and leads with boundary followers: where UTF-8 decoders differ."""
    edges = (0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF4)
    texts = [bytes((a, b)) for a in range(256) for b in range(256)]
    texts += [bytes((a, b, c, d)) for a in range(0xC0, 256) for b in edges for c in edges
              for d in (0x41, 0x80, 0xF0)]  # fmt: skip
    for text in texts:
        assert native.java_hash(text) == python.java_hash(text), text


def test_checksums_of_every_length() -> None:
    noise = random.Random(3).randbytes(5000)
    for size in (*range(300), 511, 512, 1000, 4096):
        for start in (0, 1, 7):
            part = memoryview(noise)[start : start + size]
            assert native.body_crc(part) == python.body_crc(part) == zlib.crc32(part) & 0x7FFFFFFF


@pytest.mark.parametrize("size", [0, 1, 15, 16, 255, 256, 257, 511, 65535, 65536, 300_000])
def test_bodies_of_every_magnitude(size: int) -> None:
    """Above some size the record checksum is joined from parts instead of computed in one go."""
    body = random.Random(size).randbytes(size)
    batch = batch_of(body, b"", body)
    out = bytearray(3 * size + 1000)
    same("encode_batch", batch, 0, np.zeros(1, np.int64), 1, out, 0, len(out), 0)
    log = records_of(batch_of(body[:60_000], b"x"))
    units = python.scan_records(log, 0, len(log), 0, True, b"", b"").queues[(b"TopicTest", 0)][1]
    same("decode_columns", [(0, log)], units, 0, 0, b"TopicTest", ALL_COLUMNS, True)
    same("scan_records", log, 0, len(log), 0, True, b"", b"")


GOOD = batch_of(b"a", b"b")
OFFSETS = np.zeros(1, np.int64)
OUT = bytearray(400)
CALLS: list[tuple[Any, ...]] = [
    ("measure_batch", tuple(GOOD)),
    ("measure_batch", None),
    ("measure_batch", GOOD._replace(body=None)),
    ("measure_batch", GOOD._replace(body=("text", OFFSETS, 4))),
    ("measure_batch", GOOD._replace(count="2")),
    ("measure_batch", GOOD._replace(queues=5)),
    ("encode_batch", GOOD, 3, OFFSETS, 0, OUT, 0, 400, 0),
    ("encode_batch", GOOD, -1, OFFSETS, 0, OUT, 0, 400, 0),
    ("encode_batch", GOOD, 2**70, OFFSETS, 0, OUT, 0, 400, 0),
    ("encode_batch", GOOD, 0, bytearray(7), 0, OUT, 0, 400, 0),
    ("encode_batch", GOOD, 0, bytes(8), 0, OUT, 0, 400, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, bytes(400), 0, 400, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, 0, 401, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, -1, 400, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, 5, 4, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, 0, 2**80, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, 0, 400, -2),
    ("encode_batch", GOOD, 0, OFFSETS, 2**63, OUT, 0, 400, 0),
    ("encode_batch", GOOD, 0, OFFSETS, 0, OUT, 0, 400, 2**63),
    ("inspect_run", b"", 0, 0, 0),
    ("inspect_run", b"", 0, -1, 100),
    ("inspect_run", b"", -1, 0, 100),
    ("inspect_run", b"", 3, 7, 100),
    ("inspect_run", "text", 0, 0, 100),
    ("relocate_run", b"", 1, OFFSETS, 0, HOST, OUT, 0, 400, 0),
    ("relocate_run", b"", 0, OFFSETS, 0, HOST, OUT, 0, 401, 0),
    ("relocate_run", b"", 0, OFFSETS, 0, HOST, OUT, 0, 400, -1),
    ("relocate_run", b"", 0, OFFSETS, 2**63, HOST, OUT, 0, 400, 0),
    ("relocate_run", b"", 0, bytes(8), 0, HOST, OUT, 0, 400, 0),
    ("relocate_run", b"", 0, OFFSETS, 0, HOST, bytes(9), 0, 9, 0),
    ("check_record", b"", 0, 0, 0, True),
    ("check_record", b"", 0, 1, 0, True),
    ("check_record", b"abc", 2, 1, 0, True),
    ("check_record", "abc", 0, 1, 0, True),
    ("scan_records", b"abc", 0, 4, 0, True, b"", b""),
    ("scan_records", b"abc", -1, 3, 0, True, b"", b""),
    ("scan_records", 5, 0, 0, 0, True, b"", b""),
    ("gather_records", [], b"", 0, True),
    ("gather_records", [], bytes(19), 0, True),
    ("gather_records", [], bytes(20), 0, True),
    ("gather_records", [(0, "text")], bytes(20), 0, True),
    ("gather_records", 5, bytes(20), 0, True),
    ("decode_columns", [], b"", 0, 0, None, ALL_COLUMNS, True),
    ("decode_columns", [], bytes(21), 0, 0, None, 0, True),
    ("java_hash", "text"),
    ("java_hash", bytearray(b"x")),
    ("body_crc", "text"),
    ("body_crc", 5),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_arguments(call: tuple[Any, ...]) -> None:
    same(*call)


def test_every_reason_is_one_text() -> None:
    texts = [text for name, text in vars(record_reasons).items() if name.isupper()]
    assert len(texts) == len(set(texts))


def test_same_functions() -> None:
    functions = {name for name in vars(native) if not name.startswith("_")}
    assert functions == set(python.__all__)
