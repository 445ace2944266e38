"""The place of a bad record; `test_typed_rows.py` has the policies."""

from __future__ import annotations

from broker_core import MessageQueue
from pyspark_rmq.payloads.bad_records import BadRow, Decoded, place_of


def test_place() -> None:
    text = place_of(MessageQueue("orders", "broker-a", 3), 12)
    assert text == "offset 12 of queue 3 of orders on broker-a"


def test_nothing_is_bad_unless_it_is_named() -> None:
    assert Decoded([1]).bad == ()
    assert BadRow(3, "why") == (3, "why")
