"""Offset message ids: host and position of a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.message_id import decode_message_id, encode_message_id
from broker_core.errors import InvalidArgument

V4 = ("10.1.2.3", 10911)


def test_the_form_of_java_clients() -> None:
    assert encode_message_id(V4, 258) == "0A010203" + "00002A9F" + "0000000000000102"
    assert len(encode_message_id(("::1", 1), 0)) == 56


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_round_trip_in_either_case(address: str, port: int, position: int) -> None:
    found = encode_message_id((address, port), position)
    assert decode_message_id(found) == decode_message_id(found.lower())
    assert decode_message_id(found)[1] == position


@pytest.mark.parametrize(
    "text", ["", "0A01", "G" * 32, "0A010203" + "00002A9F" + "F" * 16, "0" * 33]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(InvalidArgument, match="message id"):
        decode_message_id(text)


@pytest.mark.parametrize("position", [-1, 1 << 63])
def test_positions_out_of_range(position: int) -> None:
    with pytest.raises(InvalidArgument, match="out of range"):
        encode_message_id(V4, position)
