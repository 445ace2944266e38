"""Formats and JSON lines of `rmq consume`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from broker_core.cli.messages.format import json_line, parse_format


class Queue(NamedTuple):
    broker_name: str = "broker-a"
    queue_id: int = 3


class Message(NamedTuple):
    body: bytes = b"hello"
    queue: Queue = Queue()
    topic: str = "orders"
    queue_offset: int = 42
    message_id: str = "7F00"
    keys: str = "k1 k2"
    tags: str = "new"
    store_timestamp: int = 1_700_000_000_001
    born_timestamp: int = 1_700_000_000_000
    properties: Mapping[str, str] = MappingProxyType({"a": "b", "c": "d"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s\\n", b"hello\n"),
        ("%t/%b/%p:%o", b"orders/broker-a/3:42"),
        ("%k|%g|%i", b"k1 k2|new|7F00"),
        ("%S %T %B", b"5 1700000000001 1700000000000"),
        ("%h", b"a=b,c=d"),
        ("100%%", b"100%"),
        ("\\t\\r\\n\\\\\\0\\xfF", b"\t\r\n\\\0\xff"),
        ("", b""),
        ("plain ü", "plain ü".encode()),
        ("%%s", b"%s"),
        ("\\\\n", b"\\n"),
    ],
)
def test_tokens_and_escapes(text: str, expected: bytes) -> None:
    assert parse_format(text)(Message()) == expected


def test_a_body_is_printed_as_it_is() -> None:
    assert parse_format("<%s>")(Message(body=b"\xff\x00%s\n")) == b"<\xff\x00%s\n>"


@pytest.mark.parametrize("text", ["%", "%z", "a%", "%\n", "\\", "\\q", "\\x1", "\\xzz"])
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        parse_format(text)


def test_json_of_a_text_body() -> None:
    line = json_line(Message(body="zwölf\n".encode()))
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "broker": "broker-a",
        "queue": 3,
        "offset": 42,
        "messageId": "7F00",
        "storeTimestamp": 1_700_000_000_001,
        "bornTimestamp": 1_700_000_000_000,
        "keys": "k1 k2",
        "tags": "new",
        "shardingKey": "",
        "properties": {"a": "b", "c": "d"},
        "body": "zwölf\n",
        "bodyEncoding": "utf-8",
    }


def test_json_of_a_binary_body() -> None:
    shown = json.loads(json_line(Message(body=b"\xff\x00")))
    assert shown["bodyEncoding"] == "base64"
    assert base64.b64decode(shown["body"]) == b"\xff\x00"


def test_json_survives_any_property() -> None:
    odd = {"\udcff": '"\\\n', "\u2028": "\0"}
    shown = json.loads(json_line(Message(properties=odd)))
    assert shown["properties"]["\u2028"] == "\0"
