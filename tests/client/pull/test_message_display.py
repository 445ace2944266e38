"""Messages for display."""

from __future__ import annotations

import json

import pytest

from broker_core.client.pull.message_display import (
    body_text,
    message_html,
    message_line,
    user_properties,
)
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord
from broker_core.codec.wire.bodies.message_queue import MessageQueue


def message(body: bytes, text: bytes = b"", sys_flag: int = 0) -> ReceivedMessage:
    record = MessageRecord("T", 1, body, text, sys_flag=sys_flag, queue_offset=7)
    return ReceivedMessage(record, MessageQueue("T", "broker-a", 1))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"plain", ("plain", "text")),
        (b"", ("", "text")),
        ("a\tb\n\u00e4".encode(), ("a\tb\n\u00e4", "text")),
        (b'{"a": 1}', ('{"a": 1}', "JSON")),
        (b"{broken", ("{broken", "text")),
        (b"\xff\x00", ("ff 00", "hex")),
        (b"a\x00b", ("61 00 62", "hex")),
        (b"\x1b[31m", ("1b 5b 33 31 6d", "hex")),
        ("\u009b31m".encode(), ("c2 9b 33 31 6d", "hex")),
        # An emoji of several characters, and spaces of French and of Chinese.
        *(
            (text.encode(), (text, "text"))
            for text in (
                "\U0001f469\u200d\U0001f680",
                "10\u00a0\u20ac",
                "1\u202f000",
                "\u4ef7\u3000\u683c",
            )
        ),
        (
            '{"who":"\U0001f469\u200d\U0001f680"}'.encode(),
            ('{"who":"\U0001f469\u200d\U0001f680"}', "JSON"),
        ),
    ],
)
def test_bodies(body: bytes, shown: tuple[str, str]) -> None:
    assert body_text(body) == shown


def test_long_bodies() -> None:
    text, kind = body_text(b"\x00" * 10_000)
    assert kind == "hex"
    assert text.endswith(" \u2026")
    pretty, _ = body_text(b'{"a":[1]}', pretty=True)
    assert json.loads(pretty) == {"a": [1]}
    assert "\n" in pretty


def test_a_message_describes_itself_as_text() -> None:
    found = message(b'{"a":[1]}', b"KEYS\x01k1\x02source\x01web\x02")
    assert [line.rstrip() for line in found.describe().splitlines()] == [
        "topic             T",
        "queue             1 of broker-a",
        "offset            7",
        "stored            1970-01-01 00:00:00.000+00:00",
        "key               k1",
        "properties        source=web",
        "id                7F00000100002A9F0000000000000000",
        "body (JSON, 9 B)  {",
        '                    "a": [',
        "                      1",
        "                    ]",
        "                  }",
    ]
    assert "body (text, 0 B)" in message(b"").describe()
    assert "ff 00" in message(b"\xff\x00").describe()


def test_one_line() -> None:
    line = message_line(message(b"hello", b"KEYS\x01k\x02TAGS\x01t\x02"))
    assert line == "<message T 1:7 key='k' tags='t' body='hello'>"


def test_a_body_that_cannot_be_decompressed_is_said() -> None:
    assert "body=(" in message_line(message(b"not zlib", sys_flag=COMPRESSED))


def test_html_is_escaped() -> None:
    page = message_html(message(b"<script>", b"a\x01<b>\x02UNIQ_KEY\x01id\x02"))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a=&lt;b&gt;" in page
    assert "UNIQ_KEY=" not in page


def test_properties_of_the_sender() -> None:
    found = user_properties(message(b"", b"a\x01b\x02UNIQ_KEY\x01id\x02"))
    assert found == {"a": "b"}


def test_nothing_in_a_description_moves_the_cursor_of_a_terminal() -> None:
    found = message(b'["\\u009b2J"]', b"KEYS\x01k\x1b[2J\x02source\x01\x1b[31m\x02").describe()
    assert "\x1b" not in found
    assert "\x9b" not in found
    assert r"source=\x1b[31m" in found
