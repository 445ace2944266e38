"""Outgoing messages: property text, refusals and their errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.produce.outgoing_message import (
    RESERVED_PROPERTIES,
    OutgoingMessage,
    body_bytes,
    check_flag,
    property_text,
)
from broker_core.codec.records.message_properties import decode_properties
from broker_core.errors import InvalidArgument, MessageTooLarge

ID = "0A00000210E118B4AAC2499602D20000"
plain_text = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]))
user_names = plain_text.filter(lambda name: name and name not in RESERVED_PROPERTIES)


def _pairs(message: OutgoingMessage) -> dict[str, str]:
    return decode_properties(property_text(message, ID).encode())


def test_fields_become_properties() -> None:
    message = OutgoingMessage(
        "T", b"", tags="A", keys="k1 k2", properties={"x": "ä"}, delay_level=3, sharding_key="s",
        wait_store_ok=False,
    )  # fmt: skip
    assert _pairs(message) == {
        "UNIQ_KEY": ID,
        "WAIT": "false",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "x": "ä",
    }


@given(plain_text, plain_text, st.dictionaries(user_names, plain_text.filter(bool), max_size=5))
def test_what_is_accepted_comes_back_unchanged(
    tags: str, keys: str, properties: dict[str, str]
) -> None:
    found = _pairs(OutgoingMessage("T", b"", tags, keys, properties))
    assert found.pop("TAGS", "") == tags
    assert found.pop("KEYS", "") == keys
    assert (found.pop("UNIQ_KEY"), found.pop("WAIT")) == (ID, "true")
    assert found == properties


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tags": "a\x01b"}, "tags"),
        ({"keys": "a\x02"}, "keys"),
        ({"sharding_key": "\x01"}, "sharding_key"),
        ({"properties": {"a\x01": "b"}}, "separator"),
        ({"properties": {"a": "b\x02c\x01d"}}, "'a'"),
        ({"properties": {"a": ""}}, "empty"),
        ({"properties": {"": "b"}}, "empty"),
        ({"properties": {"a": 1}}, "'a' must be text"),
        ({"properties": {1: "a"}}, "must be text"),
        ({"properties": {"DELAY": "3"}}, "DELAY belongs to RocketMQ"),
        ({"properties": {"REAL_TOPIC": "x"}}, "REAL_TOPIC"),
        ({"properties": {"a": "\ud800"}}, "UTF-8"),
        ({"tags": 5}, "tags must be a text"),
        ({"keys": ["a"]}, "keys must be a text"),
        ({"delay_level": -1}, "delay_level -1"),
        ({"delay_level": "3"}, "delay_level"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        property_text(OutgoingMessage("T", b"", **fields), ID)


def test_the_largest_property_text_fits_and_one_byte_more_does_not() -> None:
    used = len(property_text(OutgoingMessage("T", b"", properties={"x": "y"}), ID)) - 1
    fits = OutgoingMessage("T", b"", properties={"x": "y" * (32_767 - used)})
    assert len(property_text(fits, ID)) == 32_767
    over = OutgoingMessage("T", b"", properties={"x": "y" * (32_768 - used)})
    with pytest.raises(MessageTooLarge, match="32768 bytes, at most 32767"):
        property_text(over, ID)
    # Characters count as the bytes that they become.
    wide = OutgoingMessage("T", b"", properties={"x": "ä" * 16_400})
    with pytest.raises(MessageTooLarge):
        property_text(wide, ID)


def test_timer_properties_are_the_users() -> None:
    assert _pairs(OutgoingMessage("T", b"", properties={"TIMER_DELAY_SEC": "5"}))["TIMER_DELAY_SEC"]


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bodies_like_bytes(body: Any) -> None:
    assert body_bytes(body) == b"x"


def test_bodies_that_are_not() -> None:
    with pytest.raises(InvalidArgument, match="encode the text"):
        body_bytes("text")
    with pytest.raises(InvalidArgument, match="NoneType"):
        body_bytes(None)


def test_flags_are_32_bits() -> None:
    assert check_flag(-(2**31)) == -(2**31)
    for flag in (2**31, "1", True, None):
        with pytest.raises(InvalidArgument, match="flag"):
            check_flag(flag)  # type: ignore[arg-type]
