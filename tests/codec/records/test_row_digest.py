"""Digests of rows: independent of order and split, different for different rows."""

from __future__ import annotations

import random
import zlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from broker_core import digest_rows
from tests.codec.codec_backends import BACKENDS, backend_name, batch_of, column


@pytest.fixture(params=BACKENDS, ids=backend_name)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


@pytest.mark.parametrize("width", [4, 8])
def test_checksums_of_rows(codec: ModuleType, width: int) -> None:
    rng = random.Random(width)
    rows = [rng.randbytes(rng.choice((0, 1, 7, 64, 300))) for _ in range(200)]
    out = np.empty(len(rows), np.uint32)
    codec.column_crcs(*column(*rows, width=width), out)
    assert out.tolist() == [zlib.crc32(row) for row in rows]
    # A slice of a column begins anywhere.
    data, offsets, _ = column(*rows, width=width)
    codec.column_crcs(data, offsets[50:101], width, out[:50])
    assert out[:50].tolist() == [zlib.crc32(row) for row in rows[50:100]]
    codec.column_crcs(b"", bytes(width), width, bytearray())


@pytest.mark.parametrize(
    ("offsets", "width", "out"),
    [
        ([0, 4], 4, 4), ([-1, 2], 4, 4), ([2, 1], 4, 4), ([0, 1, 2], 4, 4), ([0], 4, 4),
        ([0, 1], 5, 4), ([0, 1], 4, 3), ([0, 1 << 40], 8, 4), ([], 4, 0),
    ],
)  # fmt: skip
def test_offsets_that_make_no_sense(
    codec: ModuleType, offsets: list[int], width: int, out: int
) -> None:
    packed = np.array(offsets, np.int64 if width == 8 else np.int32)
    with pytest.raises(ValueError, match="offsets"):
        codec.column_crcs(b"abc", packed, width, bytearray(out))


def test_only_buffers(codec: ModuleType) -> None:
    with pytest.raises(TypeError):
        codec.column_crcs("text", bytes(4), 4, bytearray())
    with pytest.raises(BufferError):
        codec.column_crcs(b"abc", bytes(8), 4, bytes(4))


ROWS = [(b"a", b"t", b"", b""), (b"b", b"", b"k", b"n\x01v"), (b"", b"", b"", b""), (b"a",) * 4]


def digest(rows: list[tuple[bytes, ...]], **fields: Any) -> int:
    body, tags, keys, properties = (column(*values) for values in zip(*rows, strict=True))
    batch = batch_of(*(row[0] for row in rows), tags=tags, keys=keys, properties=properties)
    return digest_rows(batch._replace(body=body, **fields))


def test_order_and_split_do_not_matter() -> None:
    whole = digest(ROWS)
    assert digest(ROWS[::-1]) == whole
    assert (digest(ROWS[:1]) + digest(ROWS[1:])) % (1 << 64) == whole
    fields = {"queues": ((b"Other", 7),), "born_timestamp": 5, "store_host": bytes(20)}
    assert digest(ROWS, **fields) == whole
    # Columns that are missing count as empty ones.
    assert digest([(b"a", b"", b"", b"")]) == digest_rows(batch_of(b"a"))
    assert digest_rows(batch_of()) == 0


def test_other_rows_have_another_digest() -> None:
    found = {digest(ROWS), digest(ROWS[:3]), digest(ROWS + ROWS[:1]), digest(ROWS, flag=1)}
    for row in range(len(ROWS)):
        for place in range(4):
            changed = [list(values) for values in ROWS]
            changed[row][place] += b"x"
            found.add(digest([tuple(values) for values in changed]))
    assert len(found) == 4 + 16
    # The same texts in other places
    assert digest([(b"a", b"b", b"", b"")]) != digest([(b"a", b"", b"b", b"")])
    assert digest([(b"a", b"x", b"", b""), (b"b", b"y", b"", b"")]) != digest(
        [(b"a", b"y", b"", b""), (b"b", b"x", b"", b"")]
    )


def test_flags_of_rows() -> None:
    batch = batch_of(b"a", b"b")
    assert digest_rows(batch, np.array([0, 0], np.int32)) == digest_rows(batch)
    assert digest_rows(batch, np.array([7, 7], np.int32)) == digest_rows(batch._replace(flag=7))
    assert digest_rows(batch, np.array([-1, 0], np.int32)) != digest_rows(batch)
