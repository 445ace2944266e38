"""Property text: the tolerant reading of the Java broker, the strict writing of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.message_properties import (
    change_properties,
    decode_properties,
    encode_properties,
    split_properties,
)
from broker_core.errors import InvalidArgument

TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)


@given(st.dictionaries(TEXT, TEXT))
def test_round_trip(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text[:-1]) == properties


@given(st.binary())
def test_any_bytes_can_be_read(text: bytes) -> None:
    decode_properties(text)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"a\x01b", {b"a": b"b"}),
        (b"a\x01b\x02", {b"a": b"b"}),
        (b"a\x01\x02c\x01d\x02", {b"c": b"d"}),
        (b"\x01b\x02c\x01d", {b"c": b"d"}),
        (b"nothing\x02c\x01d", {b"c": b"d"}),
        (b"a\x01b\x01c\x02", {b"a": b"b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {b"a": b"c"}),
        (b"a\x01b\x02a\x01\x02", {b"a": b"b"}),
    ],
)
def test_tolerant_reading(text: bytes, pairs: dict[bytes, bytes]) -> None:
    assert split_properties(text) == pairs


def test_empty_names_and_values_are_left_out() -> None:
    assert encode_properties({"": "a", "b": "", "c": "d"}) == b"c\x01d\x02"


@pytest.mark.parametrize(
    "properties",
    [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "\x01"}, {"a": "b\x02"}, {"a": "\ud800"}, {"a": 1}],
)
def test_unwritable_pairs_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        encode_properties(properties)


def test_change_properties() -> None:
    text = b"a\x011\x02odd\x01x\x01y\xff\x02b\x012\x02a\x013"
    assert change_properties(text, {}) == b"a\x013\x02odd\x01x\x01y\xff\x02b\x012\x02"
    changed = change_properties(text, {"b": "", "a": "new", "c": "4"})
    assert changed == b"odd\x01x\x01y\xff\x02a\x01new\x02c\x014\x02"
    assert change_properties(b"", {"missing": ""}) == b""
    with pytest.raises(InvalidArgument, match="separator"):
        change_properties(text, {"a": "x\x02y"})
