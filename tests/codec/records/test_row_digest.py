"""Digests of rows: independent of order and split, different for different rows."""

from __future__ import annotations

import random
import zlib
from types import ModuleType

import numpy as np
import pytest

from broker_core import digest_rows
from broker_core.codec.records.row_digest import sum_of_digests, text_words
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


def words(*texts: bytes) -> object:
    return text_words([len(text) for text in texts], [zlib.crc32(text) for text in texts])


def test_a_word_has_length_and_checksum() -> None:
    found = text_words(np.array([3, 0, 1 << 31]), np.array([7, 0, 0xFFFFFFFF], np.uint32))
    assert found.tolist() == [3 << 32 | 7, 0, (1 << 31) << 32 | 0xFFFFFFFF]
    assert found.dtype == np.uint64


def test_the_sum_is_the_digest_of_the_rows() -> None:
    found = sum_of_digests([words(b"a", b"")], 0, 2)
    assert found == digest_rows(batch_of(b"a", b""))
    # A column that is missing counts as one of empty texts.
    assert found == sum_of_digests([words(b"a", b""), words(b"", b""), None, None], 0, 2)
    assert found == sum_of_digests([words(b"", b"a")], [0, 0], 2)
    assert sum_of_digests([], 0, 0) == 0


def test_flags_are_unsigned() -> None:
    minus_one = np.array([-1], np.int32).astype(np.uint32)
    assert sum_of_digests([words(b"a")], minus_one, 1) == sum_of_digests(
        [words(b"a")], 0xFFFFFFFF, 1
    )
    assert sum_of_digests([words(b"a")], 0xFFFFFFFF, 1) == digest_rows(
        batch_of(b"a")._replace(flag=-1)
    )
