"""The worked example of the checkpoint page."""

from __future__ import annotations

from broker_core.codec.records.checkpoint_page import (
    CheckpointPage,
    decode_checkpoint,
    encode_checkpoint,
)

STORE_MS = 1700000000123


def test_checkpoint_page() -> None:
    page = CheckpointPage(STORE_MS, STORE_MS, 0, 0, 4231)
    encoded = encode_checkpoint(page)
    assert len(encoded) == 4096
    assert encoded[:40] == bytes.fromhex(
        "00 00 01 8b cf e5 68 7b 00 00 01 8b cf e5 68 7b" + "00" * 16 + "00 00 00 00 00 00 10 87"
    )
    assert not any(encoded[40:])
    assert decode_checkpoint(encoded) == page
