"""The native codec and its pure-Python twin are one codec: same results, errors and written bytes.

Every function of the contract runs on both with the same good, damaged and absurd input. The
outcome (result, or exception with its arguments) and every buffer it may write to are compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.column_batch import ColumnBatch, encode_places
from broker_core.codec.records.record_layout import DAMAGE_ONLY, ELSEWHERE, UNIT
from broker_core.codec.records.record_scan import Scan
from broker_core.errors import CorruptRecord, MalformedBatch, MalformedRecord
from tests.codec.codec_backends import HOST, batch_of, column
from tests.codec.codec_backends import PURE_PYTHON as python
from tests.codec.codec_inputs import (
    GROUP_TOPIC,
    INT32S,
    INT64S,
    TOPICS,
    damaged,
    good_batch,
    questionable_batch,
)

native = pytest.importorskip(
    "broker_core.codec.native._native",
    reason="the native codec is not built: python setup.py build_ext --inplace",
)

STORE_TIME = 1700000000123
ALL_COLUMNS = (1 << 15) - 1
MICROS = 1 << 20
DELAYS_MS = np.array([1000, 5000, 10_000], np.int64).tobytes()
EXPECTED_ERRORS = (
    MalformedBatch, MalformedRecord, CorruptRecord, ValueError, TypeError, OverflowError,
    BufferError,
)  # fmt: skip


# A seed stands for a handful of cases: making them is cheaper than drawing them one by one, and
# the same time sees many more of them. The seed that Hypothesis reports reproduces a failure.
SEEDS = st.integers(0, 2**32 - 1)
CASES_PER_SEED = 50


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


def cases(seed: int) -> list[Random]:
    """Independent sources of randomness, one per case."""
    return [Random(f"{seed}/{number}") for number in range(CASES_PER_SEED)]


@given(SEEDS)
def test_encoding_good_batches(seed: int) -> None:
    for rng in cases(seed):
        batch = good_batch(rng)
        measured = same("measure_batch", batch)
        total = measured[2][0] if measured[0] == "returned" else 4000
        out_start = rng.randrange(4)
        out_limit = max(out_start + total + rng.choice((8, 8, 7, 0, -100, -400)), out_start)
        out = bytearray(b"\xee") * (out_limit + 5)
        offsets = np.arange(len(batch.queues), dtype=np.int64) * 100
        first_row = rng.choice((0, 0, rng.randrange(batch.count + 1)))
        position = rng.choice((-1, 0, 4096, 2**62))
        same(
            "encode_batch", batch, first_row, offsets, STORE_TIME, out, out_start, out_limit,
            position, rng.choice((None, np.array([rng.getrandbits(64)], np.uint64))),
        )  # fmt: skip


@given(SEEDS)
def test_encoding_questionable_batches(seed: int) -> None:
    for rng in cases(seed):
        batch = questionable_batch(rng)
        same("measure_batch", batch)
        offsets = np.zeros(8, np.int64)
        out = bytearray(4096)
        first_row = rng.choice((0, 0, 1, 6))
        position = rng.choice((-1, 0))
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


@given(SEEDS)
def test_runs(seed: int) -> None:
    for rng in cases(seed):
        batch = good_batch(rng)
        run = damaged(rng, records_of(batch, position=-1), changes_max=rng.choice((0, 2)))
        queue_count = rng.choice((len(batch.queues), len(batch.queues), 0, 1))
        position = rng.choice((0, 1, 600, 4095, 2**40 + 3))
        segment_size = rng.choice((1 << 30, 4096, 900, 150, 100, 9, 1))
        places = encode_places(batch.queues[:queue_count])
        places = rng.choice((places, places, places[1:], places + b"x", damaged(rng, places), b""))
        same("inspect_run", run, queue_count, position, segment_size)
        host_size = rng.choice((len(batch.store_host), 0, 8, -1))
        same("inspect_run", run, queue_count, position, segment_size, places, host_size)
        limit = rng.choice((-1, 0, 1, 5, 20, 2**31, 2**70))
        same("inspect_run", run, queue_count, position, segment_size, places, 0, 1, limit)
        same("inspect_run", run, queue_count, position, segment_size, places, 0, 0)
        offsets = np.arange(queue_count, dtype=np.int64) * 50
        host = rng.choice((batch.store_host, batch.store_host, HOST, b"", b"x" * 21))
        out_limit = rng.choice((1 << 14, len(run) + 8, len(run) + 7, 300, 0))
        out = bytearray(b"\xee") * (out_limit + 3)
        run_start = rng.choice((0, 0, min(len(run), 91)))
        same("relocate_run", run, run_start, offsets, STORE_TIME, host, out, 0, out_limit, position)
        same(
            "relocate_run", run, run_start, offsets, STORE_TIME, host, out, 0, out_limit, position,
            places,
        )  # fmt: skip


@given(SEEDS)
def test_runs_with_wrong_numbers(seed: int) -> None:
    """Templates that are intact but do not belong at their place in the run."""
    for rng in cases(seed):
        batch = good_batch(rng)
        run = records_of(batch, position=-1) + records_of(good_batch(rng), position=-1)
        first = int.from_bytes(run[:4], "big")
        same("inspect_run", run, 4, 0, 1 << 20)
        same("inspect_run", run[first:] + run[:first], 4, 0, 1 << 20)
        count = len(batch.queues)
        same("inspect_run", run, count, 0, 1 << 20, encode_places(batch.queues[::-1]), 8)


@given(SEEDS)
def test_scans_and_single_records(seed: int) -> None:
    for rng in cases(seed):
        position = rng.choice((0, 4096, 2**40))
        log = records_of(good_batch(rng), position)
        log += rng.choice((b"", bytes(7), bytes(100), b"\0\0\0\x20\xcb\xd4\x31\x94"))
        log = damaged(rng, log, changes_max=rng.choice((0, 2)))
        check_crc = rng.random() < 0.5
        delays = rng.choice((DELAYS_MS, DELAYS_MS, b"", b"1234567"))
        group = rng.choice((GROUP_TOPIC, b"TopicTest", b""))
        found = same("scan_records", log, 0, len(log), position, check_crc, delays, group)
        same("scan_records", log, 0, len(log), position, check_crc, delays, group, True)
        limit = rng.randrange(len(log) + 1)
        start = rng.choice((0, min(limit, 1), found[0][0], len(log) + 1))
        same("scan_records", log, start, limit, position + start, check_crc, delays, group)
        same("check_record", log, start, limit, position + start, check_crc)
        same("check_record", log, 0, len(log), rng.choice((position, -1)), check_crc)


def test_a_scan_over_many_queues() -> None:
    queues = tuple((b"Topic%d" % (number % 40), number) for number in range(300))
    index = np.array([Random(5).randrange(300) for _ in range(900)], np.int32)
    batch = batch_of(*[b"x"] * 900, queues=queues, queue_index=index)
    index[300:600] = np.arange(300)
    log = records_of(batch)
    found = same("scan_records", log, 0, len(log), 0, True, DELAYS_MS, b"")
    assert found[0][3] == 900


@given(SEEDS)
def test_single_messages(seed: int) -> None:
    for rng in cases(seed):
        topic = rng.choice((b"T", b"%RETRY%" + b"g" * 150, b"", b"a/b", b"x" * 300))
        start, limit = rng.choice(((0, 4096), (8, 300), (0, 150), (10, 5), (0, 9999)))
        arguments = (
            start, limit, rng.choice((0, 4096, 2**40, -1)), rng.randrange(2**41), rng.randrange(99),
            topic, rng.choice((0, 3, -1, 2**31)), rng.randbytes(rng.choice((0, 1, 100, 5000))),
            rng.choice((b"", b"TAGS\x01a\x02", b"a\x01b", b"p" * 32768)), rng.randrange(9),
            rng.choice((0, 4, 8, 12, 48)), rng.randrange(2**41), rng.choice((HOST, bytes(20), b"")),
            rng.choice((HOST, bytes(20))), rng.randrange(3), rng.randrange(9), rng.random() < 0.7,
        )  # fmt: skip
        same("encode_message", bytearray(4096), *arguments)


@given(SEEDS)
def test_messages_of_callers(seed: int) -> None:
    for rng in cases(seed):
        topic = rng.choice((b"T", b"%RETRY%" + b"g" * 150, b"", b"a/b"))
        start, limit = rng.choice(((0, 4096), (8, 300), (0, 150), (10, 5), (0, 9999)))
        message = [
            "T", rng.randbytes(rng.choice((0, 1, 100, 5000))), rng.choice((0, 3)),
            rng.choice(("", "a", "中", "x" * 40)), rng.choice(("", "k1 k2")),
            rng.choice(({}, MappingProxyType({}))), rng.randrange(9), rng.choice((0, 8)),
            rng.choice((None, 1234)), None, rng.randrange(3), rng.randrange(9),
        ]  # fmt: skip
        if rng.random() < 0.5:
            odd = (
                True,
                -1,
                2**31,
                2**70,
                4,
                12,
                1.5,
                "\x01",
                "\ud800",
                b"b",
                bytearray(b"b"),
                None,
                [],
            )
            message[rng.randrange(len(message))] = rng.choice(odd)
        same(
            "encode_put", tuple(message), rng.choice((b"", b"a\x01b\x02", b"p" * 32768)),
            rng.choice((4096, 99)), bytearray(4096), start, limit, rng.choice((0, 2**40, -1)),
            rng.randrange(2**41), rng.randrange(99), topic, rng.choice((HOST, bytes(20), b"")),
            rng.randrange(2**41), rng.random() < 0.7,
        )  # fmt: skip


def test_every_single_flipped_bit() -> None:
    batch = batch_of(
        b"hello", b"", queues=((b"SCHEDULE_TOPIC_XXXX", 1),),
        tags=column(b"TagA", "中".encode()), keys=column(b"k1 k2", b""),
        properties=column(b"UNIQ_KEY\x01U1\x02DELAY\x012", b""),
    )  # fmt: skip
    log = bytearray(records_of(batch))
    scan = python.scan_records(bytes(log), 0, len(log), 0, True, DELAYS_MS, b"")
    units = scan.queues[(b"SCHEDULE_TOPIC_XXXX", 1)][1]
    for bit in range(len(log) * 8):
        log[bit // 8] ^= 1 << bit % 8
        for verify in (True, False, 2 | DAMAGE_ONLY):
            same("scan_records", bytes(log), 0, len(log), 0, verify, DELAYS_MS, b"")
            same("gather_records", [(0, bytes(log))], units, 0, verify)
        log[bit // 8] ^= 1 << bit % 8


@given(SEEDS)
def test_garbage(seed: int) -> None:
    for rng in cases(seed):
        size = rng.choice((b"\0\0\0\x5b", b"\0\0\0\x7f", b"\x7f\xff\xff\xff", b""))
        magic = rng.choice((b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", bytes(4)))
        noise = rng.choice((rng.randbytes, bytes))(rng.randrange(200))
        garbage = size + magic + noise
        same("scan_records", garbage, 0, len(garbage), 0, False, b"", b"")
        same("inspect_run", garbage, 2, 0, 1 << 20)
        same("relocate_run", garbage, 0, np.zeros(2, np.int64), 0, HOST, bytearray(512), 0, 512, 0)
        same("check_record", garbage, 0, len(garbage), 0, True)


def _pieces(rng: Random, log: bytes, position: int) -> list[tuple[int, bytes]]:
    """The log in one span, or cut at arbitrary places and perhaps with one piece missing."""
    if rng.random() < 0.6:
        return [(position, log)]
    cuts = sorted({0, len(log), *(rng.randrange(len(log) + 1) for _ in range(3))})
    pieces = [(position + a, log[a:b]) for a, b in pairwise(cuts)]
    if pieces and rng.random() < 0.5:
        del pieces[rng.randrange(len(pieces))]
    return pieces


def _read_arguments(rng: Random) -> tuple[Any, ...]:
    """Spans, units, queue offset, queue id and topic; mostly those of one queue of a good log."""
    position = rng.choice((0, 4096, 2**40))
    log = records_of(good_batch(rng), position)
    scan = native.scan_records(log, 0, len(log), position, True, DELAYS_MS, b"")
    queues = scan.queues or {(b"TopicTest", 0): (0, bytes(20))}
    (topic, queue_id), (first, units) = rng.choice(list(queues.items()))
    skipped = rng.choice((0, 0, rng.randrange(len(units) // 20 + 1)))
    units = units[skipped * 20 :]
    if rng.random() < 0.2:
        units = damaged(rng, units)
        units = units[: len(units) // 20 * 20] if rng.random() < 0.8 else units
    if units and rng.random() < 0.1:
        # A size that is wrong but inside the log, or the filler of a queue that starts late.
        units = units[:8] + rng.choice((b"\x7f\xff\xff\xff", b"\0\0\x01\xf4")) + units[12:]
    if rng.random() < 0.2:
        log = damaged(rng, log)
    # Now and then the reader asks for another queue, or from another offset.
    asked = rng.randrange(12)
    return (
        _pieces(rng, log, position),
        units,
        first + skipped + (asked == 0),
        rng.choice(INT32S) if asked == 1 else rng.choice((queue_id, -1)),
        rng.choice(TOPICS) if asked == 2 else rng.choice((topic, None)),
    )


@given(SEEDS)
def test_reads_by_unit(seed: int) -> None:
    for rng in cases(seed):
        spans, units, queue_offset, queue_id, topic = _read_arguments(rng)
        verify = rng.choice((0, 1, 2)) | rng.choice((0, ELSEWHERE, DAMAGE_ONLY))
        wanted = rng.choice(
            (ALL_COLUMNS, ALL_COLUMNS | MICROS, rng.randrange(ALL_COLUMNS), rng.choice(INT64S))
        )
        same("gather_records", spans, units, queue_offset, verify)
        same("adjacent_runs", units, rng.choice((0, 1, 2, 50, -1)))
        same("decode_columns", spans, units, queue_offset, queue_id, topic, wanted, verify)


def _packed(numbers: tuple[int, ...], *widths: int) -> bytes:
    return b"".join(
        number.to_bytes(width, "big", signed=True)
        for number, width in zip(numbers, widths, strict=True)
    )


@given(SEEDS)
def test_index_entries(seed: int) -> None:
    for rng in cases(seed):
        position = rng.choice((0, 0, 2**40))
        entries = b""
        for _ in range(rng.randrange(12)):
            position += rng.choice((0, 1, 500, -3))
            time = STORE_TIME + rng.choice((0, 0, 999, 1000, 86_400_000, -5000, *INT64S[4:6]))
            entries += _packed((rng.choice((*INT32S, *range(9))), position, time), 4, 8, 8)
        hash_slots = rng.choice((1, 3, 5, 5, 5, 0, -1, 2**62))
        entry_max = rng.choice((0, 1, 2, 6, 12, 12, 12, -1, 2**62))
        size = 40 + 4 * min(max(hash_slots, 0), 5) + 20 * min(max(entry_max, 0), 12)
        file = bytearray(size)
        if rng.random() < 0.5:
            begin = rng.choice((0, STORE_TIME, STORE_TIME - 10**7, *INT64S))
            ends = (begin, rng.choice((position, 0)), rng.choice((position, 0, *INT64S)))
            header = (begin, *ends, rng.randrange(5), rng.choice((1, 2, 3, 5, *INT32S)))
            slots = _packed(tuple(rng.choices((0, 1, 2, *INT32S), k=3)), 4, 4, 4)
            filled = _packed(header, 8, 8, 8, 8, 4, 4) + slots
            file[: len(filled)] = filled[:size]
        missing = rng.choice((0, 0, 0, 1))
        start = rng.choice((0, 0, 0, 20, 40, 10, -20))
        same("append_index_entries", file[: size - missing], hash_slots, entry_max, entries, start)
        same("append_index_entries", file, hash_slots, entry_max, entries + b"x" * missing, start)


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
    noise = Random(3).randbytes(61_000)
    for size in (*range(900), 1000, 4096, 60_001):
        for start in (0, 1, 7):
            part = memoryview(noise)[start : start + size]
            assert native.body_crc(part) == python.body_crc(part) == zlib.crc32(part) & 0x7FFFFFFF
            # Those, too, that other processors use.
            assert {*native._crc_by_every_method(part)} == {zlib.crc32(part)}, size


@pytest.mark.parametrize("size", [0, 1, 15, 16, 255, 256, 257, 511, 65535, 65536, 300_000])
def test_bodies_of_every_magnitude(size: int) -> None:
    """Above some size the record checksum is joined from parts instead of computed in one go."""
    body = Random(size).randbytes(size)
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
    ("adjacent_runs", b"", 1),
    ("adjacent_runs", bytes(21), 1),
    ("adjacent_runs", bytes(20), 1),
    ("adjacent_runs", UNIT.pack(100, 50, 7) + UNIT.pack(150, 10, 0) + UNIT.pack(170, 9, 0), 2),
    ("adjacent_runs", UNIT.pack(100, 50, 7) + UNIT.pack(150, 10, 0) + UNIT.pack(170, 9, 0), 1),
    ("adjacent_runs", UNIT.pack(2**63 - 3, 2, 0) + UNIT.pack(2**63 - 1, 1, 0), 9),
    ("adjacent_runs", UNIT.pack(5, 0, 0), 9),
    ("adjacent_runs", UNIT.pack(-5, 1, 0), 9),
    ("adjacent_runs", "text", 9),
    ("new_buffer", -1),
    ("new_buffer", "1"),
    ("new_buffer", 0),
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
