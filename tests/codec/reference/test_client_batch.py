"""Bodies of batch sends: the spec's example, every malformation, and both backends alike."""

from __future__ import annotations

import random
import struct
from array import array
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.wire.message_id import encode_message_id
from broker_core.errors import MalformedBatch
from tests.codec.codec_backends import BACKENDS, batch_of, column
from tests.codec.codec_inputs import good_batch, questionable_batch

EXAMPLE = bytes.fromhex(
    "0000001e0000000000000000000000000000000161000754414753014102000000180000000000000000000000"
    "000000000262630000"
)


def item(body: bytes, text: bytes = b"", flag: int = 0, size: int | None = None) -> bytes:
    total = 22 + len(body) + len(text) if size is None else size
    return (
        struct.pack(">iiiii", total, 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(text))
        + text
    )


def longs(data: bytes) -> list[int]:
    return list(array("q", data))


def test_the_example_of_the_protocol(codec: ModuleType) -> None:
    count, flags, bodies, body_offsets, texts, text_offsets, has_timer = codec.split_client_batch(
        EXAMPLE, b""
    )
    assert has_timer is False
    assert count == 2
    assert list(array("i", flags)) == [0, 0]
    assert (bodies, longs(body_offsets)) == (b"abc", [0, 1, 3])
    assert (texts, longs(text_offsets)) == (b"TAGS\x01A\x02", [0, 7, 7])


def test_texts_much_longer_than_bodies_are_joined(codec: ModuleType) -> None:
    """More bytes than the room that is guessed from the bodies."""
    texts = [b"k\x01" + bytes([65 + row]) * 5_000 + b"\x02" for row in range(20)]
    batch = batch_of(*[b"b"] * 20, properties=column(*texts))
    row, count, data = codec.join_client_batch(batch, 0, -1, 1 << 20)
    assert (row, count) == (20, 20)
    found = codec.split_client_batch(data, b"")
    assert (found[0], found[2], found[4]) == (20, b"b" * 20, b"".join(texts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"TIMER_DELAY_MS\x015\x02", True), (b"MMTIMER_DE", True), (b"TIMER_DE", True),
        (b"a\x01TIMTIMER_DEMO\x02", True), (b"TIMER_D", False), (b"TIMER_OUT_MS\x015\x02", False),
        (b"", False), (b"M", False), (b"xxM", False), (b"IMER_DE", False), (b"timer_de", False),
        (b"M" * 99, False),
    ],
)  # fmt: skip
def test_a_timer_is_noticed(codec: ModuleType, text: bytes, expected: bool) -> None:
    data = item(b"TIMER_DE", b"UNIQ_KEY\x01A\x02") + item(b"x", text) + item(b"y", b"a\x01b\x02")
    assert codec.split_client_batch(data, b"z\x01TIMER_DE\x02")[6] is expected


def test_the_suffix_closes_an_open_text(codec: ModuleType) -> None:
    data = item(b"x", b"a\x01b", -7) + item(b"", b"c\x01d\x02", 9) + item(b"yy")
    count, flags, _, _, texts, text_offsets, _ = codec.split_client_batch(data, b"s\x01t\x02")
    assert (count, list(array("i", flags))) == (3, [-7, 9, 0])
    ends = longs(text_offsets)
    rows = [texts[start:end] for start, end in pairwise(ends)]
    assert rows == [b"a\x01b\x02s\x01t\x02", b"c\x01d\x02s\x01t\x02", b"s\x01t\x02"]


@pytest.mark.parametrize(
    ("data", "row", "reason"),
    [
        (item(b"a") + b"\0\0\0", 1, reasons.HEADER_CUT),
        (item(b"a", size=21), 0, reasons.SIZE_TOO_SMALL),
        (item(b"a", size=-1), 0, reasons.SIZE_TOO_SMALL),
        (item(b"a") + item(b"a", size=99), 1, reasons.SIZE_PAST_LIMIT),
        (struct.pack(">iiiii", 23, 0, 0, 0, -1) + b"a\0\0", 0, reasons.NEGATIVE_BODY),
        (struct.pack(">iiiii", 23, 0, 0, 0, 2) + b"a\0\0", 0, reasons.LENGTHS_DISAGREE),
        (struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"a\xff\xff", 0, reasons.NEGATIVE_PROPERTIES),
        (struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"a\0\1", 0, reasons.LENGTHS_DISAGREE),
    ],
)
def test_malformed_bodies(codec: ModuleType, data: bytes, row: int, reason: str) -> None:
    with pytest.raises(MalformedBatch) as caught:
        codec.split_client_batch(data, b"")
    assert (caught.value.row, caught.value.reason) == (row, reason)


def test_ids_follow_the_sizes(codec: ModuleType) -> None:
    sizes = (91, 200, 95)
    data = b"????" + b"".join(struct.pack(">i", size) + bytes(size - 4) for size in sizes)
    host = ("10.0.0.1", 10911)
    ids = codec.list_message_ids(data, 4, 3, encode_host(host), 1024)
    assert ids.split(",") == [encode_message_id(host, at) for at in (1024, 1115, 1315)]


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (MalformedBatch, ValueError, TypeError, OverflowError, BufferError) as error:
        return type(error), error.args


ITEMS = st.lists(
    st.tuples(st.binary(max_size=40), st.binary(max_size=40), st.integers(-(2**31), 2**31 - 1)),
    max_size=5,
)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
@given(ITEMS, st.binary(max_size=8), st.integers(0, 400), st.integers(0, 255), st.integers(0, 3))
def test_both_backends_are_one(
    items: list[tuple[bytes, bytes, int]], suffix: bytes, at: int, value: int, cut: int
) -> None:
    python, native = BACKENDS
    data = bytearray(b"".join(item(body, text, flag) for body, text, flag in items))
    good = outcome(python.split_client_batch, data, suffix)
    assert good == outcome(native.split_client_batch, data, suffix)
    assert good[0] == len(items)
    if data:
        data[at % len(data)] = value
        data = data[: len(data) - cut]
    expected = outcome(python.split_client_batch, data, suffix)
    assert outcome(native.split_client_batch, data, suffix) == expected
    arguments = (data, at % 8, len(items), encode_host(("1.2.3.4", 5)), value)
    expected = outcome(python.list_message_ids, *arguments)
    assert outcome(native.list_message_ids, *arguments) == expected


@pytest.mark.parametrize("queue", [-1, 0, 1])
def test_joined_rows_split_into_themselves(codec: ModuleType, queue: int) -> None:
    bodies = [b"", b"a", b"bb" * 50, b"c"]
    batch = batch_of(
        *bodies,
        queues=((b"T", 0), (b"T", 1)),
        queue_index=array("i", (0, 1, 1, 0)),
        tags=column(b"A", b"", b"B", b""),
        keys=column(b"", b"k", b"", b""),
        properties=column(b"", b"x\x01y", b"x\x01y\x02", b""),
        flag=-3,
    )
    texts = [b"TAGS\x01A\x02", b"KEYS\x01k\x02x\x01y\x02", b"TAGS\x01B\x02x\x01y\x02", b""]
    mine = [row for row, owner in enumerate((0, 1, 1, 0)) if queue in (-1, owner)]
    following, count, body = codec.join_client_batch(batch, 0, queue, 1 << 20)
    assert (following, count) == (4, len(mine))
    _, flags, joined, _, properties, _, _ = codec.split_client_batch(body, b"")
    assert joined == b"".join(bodies[row] for row in mine)
    assert properties == b"".join(texts[row] for row in mine)
    assert set(array("i", flags)) == {-3}
    # In pieces: at least one row each, the same rows in all.
    start, pieces = 0, []
    while start < 4:
        start, taken, piece = codec.join_client_batch(batch, start, queue, 1)
        assert taken <= 1
        pieces.append(piece)
    assert b"".join(pieces) == body


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
@given(st.integers(0, 2**32 - 1), st.integers(-1, 3), st.integers(0, 400))
def test_joining_is_one_on_both_backends(seed: int, queue: int, size_max: int) -> None:
    rng = random.Random(seed)
    for batch in (good_batch(rng), questionable_batch(rng)):
        first = rng.randrange(3)
        python, native = (
            outcome(codec.join_client_batch, batch, first, queue, size_max) for codec in BACKENDS
        )
        assert python == native
