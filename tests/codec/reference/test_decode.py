"""Queue units and log pieces to records, columns and Arrow."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from broker_core.codec.records import column_names as names
from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.record_layout import (
    CHECK_CHECKSUMS,
    CRC_MASK,
    CRC_TAIL_SIZE,
    DAMAGE_ONLY,
    PRE_BLANK_UNIT,
    REQUIRE_CHECKSUM,
    UNIT,
    crc_tail,
)
from broker_core.errors import CorruptRecord
from tests.codec.codec_backends import batch_of, column, encode_all

BODIES = (b"one", b"", b"three", b"four")


def sample(codec: ModuleType) -> tuple[bytes, bytes]:
    """Four records at log position 1000, queue offsets from 5, and their units."""
    batch = batch_of(
        *BODIES,
        tags=column(b"TagA", b"", b"\xff", b"TagB"),
        keys=column(b"", b"", b"k1 k2", b""),
        properties=column(b"UNIQ_KEY\x01u\x02", b"", b"a\x01b", b""),
    )
    log = encode_all(codec, batch, 1000, first_offset=5)
    found = codec.scan_records(log, 0, len(log), 1000, True, b"", b"")
    return log, found.queues[b"TopicTest", 0][1]


def spans_of(log: bytes, units: bytes) -> list[tuple[int, bytes]]:
    """The log in two pieces, cut between the second and the third record."""
    cut = int.from_bytes(units[40:48], "big") - 1000
    return [(1000, log[:cut]), (1000 + cut, log[cut:])]


def test_gather_returns_the_records(codec: ModuleType) -> None:
    log, units = sample(codec)
    assert codec.gather_records([(1000, log)], units, 5, True) == log
    assert codec.gather_records(spans_of(log, units), units, 5, False) == log
    assert codec.gather_records([(1000, log)], b"", 5, True) == b""
    third = codec.gather_records([(1000, log)], units[40:60], 7, True)
    assert third in log


@pytest.mark.parametrize("size", [0, 5, 40, 100, 300, 1100])
def test_no_flipped_bit_passes_for_a_body(codec: ModuleType, size: int) -> None:
    body = (bytes(range(256)) * 5)[:size]
    log = bytearray(encode_all(codec, batch_of(body), 1000, first_offset=5))
    [(_, units)] = codec.scan_records(log, 0, len(log), 1000, True, b"", b"").queues.values()
    for level in (CHECK_CHECKSUMS, REQUIRE_CHECKSUM):
        for bit in range(len(log) * 8):
            log[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptRecord):
                codec.gather_records([(1000, log)], units, 5, level | DAMAGE_ONLY)
            log[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("whole", [True, False], ids=["whole record", "body only"])
def test_a_body_checksum_that_never_was_right(codec: ModuleType, whole: bool) -> None:
    """No damage where a checksum of the whole record says so, and the only one elsewhere."""
    log = bytearray(encode_all(codec, batch_of(b"a body", append_crc=whole), 1000, first_offset=5))
    [(_, units)] = codec.scan_records(log, 0, len(log), 1000, True, b"", b"").queues.values()
    log[8] ^= 1
    if whole:
        log[-CRC_TAIL_SIZE:] = crc_tail(crc32(log[:-CRC_TAIL_SIZE]) & CRC_MASK)
        assert codec.gather_records([(1000, log)], units, 5, 1 | DAMAGE_ONLY) == log
    else:
        with pytest.raises(CorruptRecord, match=reasons.BODY_CRC):
            codec.gather_records([(1000, log)], units, 5, 1 | DAMAGE_ONLY)
    with pytest.raises(CorruptRecord, match=reasons.BODY_CRC):
        codec.gather_records([(1000, log)], units, 5, CHECK_CHECKSUMS)


def test_only_wanted_columns(codec: ModuleType) -> None:
    log, units = sample(codec)
    columns = codec.decode_columns([(1000, log)], units, 5, -1, None, names.QUEUE_OFFSET, False)
    assert columns == {"queue_offset": np.arange(5, 9, dtype=np.int64).tobytes()}
    plain = codec.decode_columns(
        [(1000, log)], units, 5, -1, None, names.VALUE | names.STORE_TIMESTAMP, False
    )
    assert plain["value"][0] == b"".join(BODIES)
    assert plain["store_timestamp"] == np.full(4, 1700000000123, np.int64).tobytes()
    assert codec.decode_columns([], b"", 0, -1, None, names.VALUE | names.TAGS, True) == {
        "value": (b"", bytes(4)),
        "tags": (b"", bytes(4), None),
    }


def read_both(codec: ModuleType, *arguments: Any) -> str:
    """Reason that both reads give for the same units."""
    with pytest.raises(CorruptRecord) as gathered:
        codec.gather_records(*arguments, True)
    with pytest.raises(CorruptRecord) as decoded:
        codec.decode_columns(*arguments, -1, None, names.VALUE, True)
    assert gathered.value.position == decoded.value.position
    assert gathered.value.reason == decoded.value.reason
    return decoded.value.reason


def test_units_that_do_not_match_the_log(codec: ModuleType) -> None:
    log, units = sample(codec)
    spans, size = [(1000, log)], int.from_bytes(units[8:12], "big")

    def unit(position: int, record_size: int) -> bytes:
        return UNIT.pack(position, record_size, 0)

    assert read_both(codec, spans, PRE_BLANK_UNIT, 5) == reasons.PRE_BLANK_UNIT
    assert read_both(codec, spans, bytes(20), 5) == reasons.BAD_UNIT
    assert read_both(codec, spans, unit(-1, 100), 5) == reasons.BAD_UNIT
    assert read_both(codec, spans, unit(999, size), 5) == reasons.NOT_IN_SPANS
    assert read_both(codec, spans, unit(1000, len(log) + 1), 5) == reasons.NOT_IN_SPANS
    assert read_both(codec, [], units, 5) == reasons.NOT_IN_SPANS
    assert read_both(codec, spans, unit(1000, size - 1), 5) == reasons.SIZE_PAST_LIMIT
    assert read_both(codec, spans, unit(1000, size + 1), 5) == reasons.UNIT_SIZE_DISAGREES
    assert read_both(codec, spans, unit(1001, size), 5) == reasons.BAD_MAGIC
    assert read_both(codec, [(1001, log)], unit(1001, size), 5) == reasons.BAD_POSITION
    assert read_both(codec, spans, units, 6) == reasons.QUEUE_OFFSET_DISAGREES
    damaged = log[:89] + b"?" + log[90:]
    assert read_both(codec, [(1000, damaged)], units, 5) == reasons.RECORD_CRC
    with pytest.raises(CorruptRecord, match=reasons.QUEUE_ID_DISAGREES):
        codec.decode_columns(spans, units, 5, 1, None, names.VALUE, False)
    with pytest.raises(CorruptRecord, match=reasons.TOPIC_DISAGREES):
        codec.decode_columns(spans, units, 5, 0, b"Other", names.VALUE, False)
    with pytest.raises(ValueError, match=reasons.BAD_UNITS):
        codec.gather_records(spans, units[:-1], 5, False)
