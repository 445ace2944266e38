"""Random input for the batch codec: good batches, questionable batches, and damaged bytes.

Everything is made from one `random.Random`, so a seed names a case. Values are small and meet each
other often (few topics, short bodies, duplicate properties): faults of loops over records are
found by the neighbours of a limit, not by size.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from broker_core.codec.records.column_batch import Column, ColumnBatch
from tests.codec.codec_backends import HOST, HOST_V6, column

GROUP_TOPIC = b"rmq_sys_GROUP"
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
TOPICS = (
    b"T", b"TopicTest", b"%RETRY%g|x-1_", b"V" * 127, b"L" * 128, b"M" * 255, SCHEDULE_TOPIC,
    SCHEDULE_TOPIC, GROUP_TOPIC,
)  # fmt: skip
INT32S = (0, 1, -1, 4, 90, 91, 92, 127, 128, 2**31 - 1, -(2**31), 2**30)
INT64S = (0, 1, -1, 1700000000123, 2**31, 2**62, 2**63 - 1, -(2**63))
_BODY_SIZES = (0, 1, 5, 15, 16, 17, 40, 100, 255, 256, 700)
_LEVELS = (b"1", b"3", b"9", b"0", b"-1", b"+2", b"007", b"x", b"+", b"2147483648", b"9" * 30)
_TEXT_PIECES = (
    *(bytes((byte,)) for byte in b"aZ9 -\x00\x7f\x80\xbf\xc3\xe4\xed\xf0\xf4\xff"),
    *(text.encode() for text in ("é", "中", "😀", " ")),
)
CRC_TAIL = b"__CRC32#\x010123456789\x02"


def text_value(rng: Random) -> bytes:
    """Text as tags and keys have it; often not valid UTF-8, never with a separator."""
    if rng.random() < 0.4:
        return rng.choice((b"", b"TagA", b"k1 k2", b" a  b ", b"x" * 15, b"y" * 16, b"z" * 17))
    return b"".join(rng.choices(_TEXT_PIECES, k=rng.randrange(14)))


def property_text(rng: Random) -> bytes:
    """Property text as clients write it, and as they should not."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(40))
    if kind == 1:
        tail = bytearray(CRC_TAIL)
        for _ in range(rng.randrange(4)):
            tail[rng.randrange(len(tail))] = rng.choice(b"0x\x02")
        return rng.choice((b"", b"a\x01b\x02")) + tail
    pairs = []
    for _ in range(rng.randrange(5)):
        name = rng.choice(
            (b"UNIQ_KEY", b"UNIQ_KEY", b"KEYS", b"TAGS", b"DELAY", b"DELAY", b"a", b"")
        )
        value = rng.choice(_LEVELS) if name == b"DELAY" else text_value(rng)
        pairs.append(name + rng.choice((b"\x01", b"\x01", b"\x01", b"")) + value)
    return b"\x02".join(pairs) + rng.choice((b"\x02", b""))


def _maybe_column(rng: Random, values: list[bytes]) -> Column | None:
    return column(*values, width=rng.choice((4, 8))) if rng.random() < 0.6 else None


def good_batch(rng: Random, rows_max: int = 8) -> ColumnBatch:
    """A batch of good rows; only `append_crc=False` may still refuse some property texts."""
    queues = list({(rng.choice(TOPICS), rng.choice((0, 1, 2**31 - 1))) for _ in range(4)})
    queues = queues[: rng.randrange(1, 5)]
    count = rng.randrange(rows_max + 1)
    born = np.array(rng.choices(INT64S, k=count), np.int64)
    bodies = [rng.randbytes(rng.choice(_BODY_SIZES)) for _ in range(count)]
    index = np.array([rng.randrange(len(queues)) for _ in range(count)], np.int32)
    return ColumnBatch(
        count,
        tuple(queues),
        rng.choice((None, index, index)),
        column(*bodies, width=rng.choice((4, 8))),
        _maybe_column(rng, [text_value(rng) for _ in range(count)]),
        _maybe_column(rng, [text_value(rng) for _ in range(count)]),
        _maybe_column(rng, [property_text(rng) for _ in range(count)]),
        flag=rng.choice(INT32S),
        # Mostly ordinary messages, so that queues fill; then every transaction type.
        sys_flag=rng.choice((0, 0, 0, 0, 1, 4, 8, 12, 0x30, -1)),
        born_timestamp=rng.choice((born, *INT64S[:3])),
        born_host=rng.choice((HOST, HOST, HOST_V6)),
        store_host=rng.choice((HOST, HOST, HOST_V6)),
        reconsume_times=rng.choice(INT32S),
        prepared_offset=rng.choice(INT64S),
        append_crc=rng.random() < 0.6,
    )


_WRONG: dict[str, tuple[Any, ...]] = {
    "count": (-1, 9, 2**62, 2**63 - 1, 2**70),
    "queues": (
        (), ((b"", 0),), ((b"x" * 256, 0),), ((b"a b", 0),), ((b"T\n", 0),), ((b"T", -1),),
        ((b"T", 2**31),), ((b"T", 2**70),), (("T", 0),), ((b"T", 0), (b"U.", 0)),
    ),
    "queue_index": (
        np.array([0, 9, 0, 0, 0, 0], np.int32), np.array([0, 0, -1] * 3, np.int32), b"",
        b"\0" * 19,
    ),
    "flag": (2**31, -(2**31) - 1, 2**70),
    "sys_flag": (2**31, -(2**31) - 1),
    "born_timestamp": (2**63, -(2**63) - 1, b"", b"\0" * 39, np.zeros(5)),
    "born_host": (b"", HOST[:7], HOST_V6 + b"x"),
    "store_host": (b"", HOST[:7], HOST_V6 + b"x"),
    "reconsume_times": (2**31, 1 << 64),
    "prepared_offset": (2**63, -(2**63) - 1),
}  # fmt: skip
_COLUMNS = ("body", "tags", "keys", "properties")


def _questionable_column(rng: Random, count: int) -> Any:
    offsets = np.sort(np.array([rng.randrange(31) for _ in range(count + 1)], np.int64))
    if rng.random() < 0.5:
        offsets[rng.randrange(count + 1)] = rng.choice((0, -1, 15, 39, 40, 41, 2**40))
    data = rng.choice((b"text" * 10, b"text" * 10, b"01234567890123\x01" * 3, b"\x02" * 40))
    width = rng.choice((4, 8)) if rng.random() < 0.9 else rng.choice((0, 2, -4, 2**70))
    raw = (offsets.astype(np.int32) if width == 4 else offsets).tobytes()
    return (data, raw[: len(raw) - rng.choice((0, 0, 0, 0, 0, 1, 7))], width)


def questionable_batch(rng: Random) -> ColumnBatch:
    """A good batch in which some fields were replaced by mostly bad ones."""
    batch = good_batch(rng, rows_max=5)
    for name in rng.sample(_COLUMNS, k=rng.randrange(3)):
        batch = batch._replace(**{name: _questionable_column(rng, batch.count)})
    for name in rng.sample(list(_WRONG), k=rng.choice((0, 0, 1, 1, 2))):
        batch = batch._replace(**{name: rng.choice(_WRONG[name])})
    return batch


def damaged(rng: Random, content: bytes, changes_max: int = 3) -> bytes:
    """`content` after a few changes: flipped bits, odd numbers, cuts, zeros, garbage."""
    data = bytearray(content)
    for _ in range(rng.randrange(changes_max + 1)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(12)
        if kind == 0:
            data[at:at] = rng.randbytes(rng.randrange(24))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at : at + 16] = bytes(len(data[at : at + 16]))
        elif at < len(data):
            # Headers are where the decisions are made: most changes go there.
            if len(data) > 120 and rng.random() < 0.5:
                at = rng.choice((*range(4), *range(8, 48), *range(84, 90), *range(96, 116)))
            if kind < 6:
                data[at] ^= 1 << rng.randrange(8)
            elif kind < 9:
                data[at] = rng.choice(b"\x00\x01\x02\x20\x7f\x80\xff")
            else:
                number = rng.choice(INT32S).to_bytes(4, "big", signed=True)
                data[at : at + 4] = number[: len(data) - at]
    return bytes(data)
