"""Bodies as texts."""

from __future__ import annotations

import pyarrow as pa

from pyspark_rmq.payloads.texts import TextDecoder


def test_texts_and_bytes_that_are_none() -> None:
    good = TextDecoder().decode(pa.array([b"", "é".encode()], pa.binary()))
    assert (good.values.to_pylist(), good.bad) == (["", "é"], ())
    decoded = TextDecoder().decode(pa.array([b"ab\xff", b"x", b"\xed\xa0\x80"], pa.binary()))
    assert decoded.values.to_pylist() == [None, "x", None]
    assert decoded.bad == [(0, "not UTF-8 at byte 2"), (2, "not UTF-8 at byte 0")]
