"""Handles of popped messages."""

from __future__ import annotations

from broker_core.codec.wire.pop_handle import PopHandle


def test_handles_are_texts_of_eight_words() -> None:
    handle = PopHandle(1, 2, 3, 4, "0", "broker-a", 5, 6)
    assert handle.text() == "1 2 3 4 0 broker-a 5 6"
