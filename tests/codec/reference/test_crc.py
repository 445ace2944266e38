"""The Python twin of the checksums."""

from __future__ import annotations

import zlib
from array import array

import pytest

from broker_core.codec.reference.crc import body_crc, column_crcs


def test_a_body_checksum_is_never_negative() -> None:
    bodies = [bytes([number]) * 9 for number in range(64)]
    assert any(zlib.crc32(body) >> 31 for body in bodies)
    for body in bodies:
        assert body_crc(body) == zlib.crc32(body) & 0x7FFF_FFFF


@pytest.mark.parametrize("kind", ["i", "q"])
def test_rows_of_a_column(kind: str) -> None:
    data, ends = b"abbccc", array(kind, [0, 1, 3, 3, 6])
    out = array("I", [0] * 4)
    column_crcs(data, ends, ends.itemsize, out)
    assert list(out) == [zlib.crc32(row) for row in (b"a", b"bb", b"", b"ccc")]


@pytest.mark.parametrize(
    ("ends", "rows"), [([0, 7], 1), ([-1, 2], 1), ([2, 1], 1), ([0, 1], 2), ([0, 1, 2], 1)]
)
def test_offsets_that_do_not_fit(ends: list[int], rows: int) -> None:
    with pytest.raises(ValueError, match="offsets"):
        column_crcs(b"abcdef", array("q", ends), 8, array("I", [0] * rows))
