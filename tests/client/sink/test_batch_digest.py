"""Digests of batches: independent of order and split, different for different rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from broker_core import digest_rows
from tests.codec.codec_backends import batch_of, column

ROWS = [(b"a", b"t", b"", b""), (b"b", b"", b"k", b"n\x01v"), (b"", b"", b"", b""), (b"a",) * 4]


def digest(rows: list[tuple[bytes, ...]], **fields: Any) -> int:
    body, tags, keys, properties = (column(*values) for values in zip(*rows, strict=True))
    batch = batch_of(*(row[0] for row in rows), tags=tags, keys=keys, properties=properties)
    return digest_rows(batch._replace(body=body, **fields))


def test_a_digest_never_changes() -> None:
    """Brokers keep digests, and compare those of later versions with them."""
    assert digest(ROWS) == 0x2DBD96851F3FD1AB
    assert digest(ROWS, flag=-7) == 0x9FF576ED82807288


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
