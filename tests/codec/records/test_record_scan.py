"""The result of a scan has the same fields in both languages."""

from __future__ import annotations

import re
from pathlib import Path

from broker_core.codec.records import record_scan as scans
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.store.writes.message import Message

ROOT = Path(__file__).resolve().parents[3]


NATIVE = ROOT / "broker_core" / "codec" / "native"


def enumerators(source: str, first: str) -> list[str]:
    """Names of the enumeration without values that begins with `first`."""
    text = re.sub(r"/\*.*?\*/", "", (NATIVE / source).read_text(), flags=re.S)
    for values in re.findall(r"enum \{(.*?)\}", text, re.S):
        names = re.findall(r"\w+", values)
        if names and names[0] == first:
            return names
    raise AssertionError(f"{source} has no enumeration that begins with {first}")


def test_orders_of_fields_are_the_same_in_both_languages() -> None:
    batch = [name.removeprefix("FIELD_").lower() for name in enumerators("batch.c", "FIELD_COUNT")]
    assert tuple(batch[:-1]) == ColumnBatch._fields
    message = enumerators("encode.c", "MESSAGE_TOPIC")
    assert len(message) - 1 == len(Message._fields)
    assert (
        tuple(name.removeprefix("MESSAGE_").lower() for name in message[:7])
        == (Message._fields[:7])
    )
    stops = enumerators("scan.c", "STOP_LIMIT")
    assert [getattr(scans, name) for name in stops] == list(range(len(stops)))
