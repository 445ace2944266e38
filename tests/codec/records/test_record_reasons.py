"""Reasons for invalid records."""

from __future__ import annotations

from broker_core.codec.records import record_reasons


def test_every_reason_is_one_text() -> None:
    texts = [text for name, text in vars(record_reasons).items() if name.isupper()]
    assert len(texts) == len(set(texts))
