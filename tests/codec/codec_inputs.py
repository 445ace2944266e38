"""Hypothesis strategies for the batch codec: good batches, and ways to damage bytes.

Values are small and meet each other often (few topics, short bodies, duplicate properties): most
faults of loops over records are found by the neighbours of a limit, not by size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from broker_core.codec.column_batch import Column, ColumnBatch
from tests.codec.codec_backends import HOST, HOST_V6, column

GROUP_TOPIC = b"rmq_sys_GROUP"
TOPICS = (
    b"T", b"TopicTest", b"%RETRY%g|x-1_", b"V" * 127, b"L" * 128, b"M" * 255,
    b"SCHEDULE_TOPIC_XXXX", GROUP_TOPIC,
)  # fmt: skip
DELAYS_MS = np.array([1000, 5000, 10_000], np.int64)
INT32S = st.sampled_from((0, 1, -1, 4, 90, 91, 92, 127, 128, 2**31 - 1, -(2**31), 2**30))
INT64S = st.sampled_from((0, 1, -1, 1700000000123, 2**31, 2**62, 2**63 - 1, -(2**63)))

_TEXT = st.one_of(
    st.sampled_from((b"", b"TagA", b"k1 k2", b" a  b ", b"x" * 15, b"y" * 16, b"z" * 17)),
    st.text("aZ é中😀", max_size=12).map(str.encode),
    st.binary(max_size=12).map(lambda raw: raw.replace(b"\x01", b"").replace(b"\x02", b"")),
)
_BODY = st.one_of(st.binary(max_size=40), st.integers(0, 600).map(lambda size: b"\xa5b" * size))
_LEVEL = st.sampled_from(
    (b"1", b"3", b"9", b"0", b"-1", b"+2", b"007", b"x", b"", b"+", b"2147483648", b"9" * 30)
)
_PAIR = st.one_of(
    st.tuples(st.sampled_from((b"UNIQ_KEY", b"KEYS", b"TAGS", b"a", b"")), _TEXT),
    st.tuples(st.just(b"DELAY"), _LEVEL),
).map(lambda pair: b"\x01".join(pair))
_PROPERTIES = st.one_of(
    st.just(b""),
    st.lists(_PAIR, max_size=4).map(b"\x02".join),
    st.lists(_PAIR, min_size=1, max_size=3).map(lambda pairs: b"\x02".join(pairs) + b"\x02"),
    st.binary(max_size=30),
    st.sampled_from((b"__CRC32#\x010123456789\x02", b"a\x01b\x02__CRC32#\x01012345678x\x02")),
)


class Row(NamedTuple):
    """One message before it is put into columns."""

    queue: int
    body: bytes
    tags: bytes
    keys: bytes
    properties: bytes
    born_timestamp: int


def _column_or_none(draw: st.DrawFn, values: list[bytes]) -> Column | None:
    if draw(st.booleans()):
        return None
    return column(*values, width=draw(st.sampled_from((4, 8))))


@st.composite
def batches(draw: st.DrawFn, rows_max: int = 8) -> ColumnBatch:
    """A batch of good rows; only `append_crc=False` may still refuse some property texts."""
    queue = st.tuples(st.sampled_from(TOPICS), st.sampled_from((0, 1, 2**31 - 1)))
    queues = draw(st.lists(queue, min_size=1, max_size=4, unique=True))
    row = st.builds(Row, st.integers(0, len(queues) - 1), _BODY, _TEXT, _TEXT, _PROPERTIES, INT64S)
    rows = draw(st.lists(row, max_size=rows_max))
    one_queue = draw(st.booleans())
    born = np.array([row.born_timestamp for row in rows], np.int64)
    return ColumnBatch(
        len(rows),
        tuple(queues),
        None if one_queue else np.array([row.queue for row in rows], np.int32),
        column(*(row.body for row in rows), width=draw(st.sampled_from((4, 8)))),
        _column_or_none(draw, [row.tags for row in rows]),
        _column_or_none(draw, [row.keys for row in rows]),
        _column_or_none(draw, [row.properties for row in rows]),
        flag=draw(INT32S),
        # Mostly ordinary messages, so that queues fill; then every transaction type.
        sys_flag=draw(st.sampled_from((0, 0, 0, 1, 4, 8, 12, 0x30, -1))),
        born_timestamp=draw(st.one_of(INT64S, st.just(born))),
        born_host=draw(st.sampled_from((HOST, HOST_V6))),
        store_host=draw(st.sampled_from((HOST, HOST_V6))),
        reconsume_times=draw(INT32S),
        prepared_offset=draw(INT64S),
        append_crc=draw(st.booleans()),
    )


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` after up to three changes: flipped bits, odd numbers, cuts, zeros, garbage."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("bit", "byte", "number", "cut", "zeros", "garbage")))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if kind == "garbage":
            data[at:at] = draw(st.binary(max_size=24))
        elif not data:
            continue
        elif kind == "bit":
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte":
            data[at] = draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF, 0x20)))
        elif kind == "number":
            number = draw(INT32S).to_bytes(4, "big", signed=True)
            data[at : at + 4] = number[: len(data) - at]
        elif kind == "cut":
            del data[at:]
        else:
            data[at : at + 16] = bytes(len(data[at : at + 16]))
    return bytes(data)
