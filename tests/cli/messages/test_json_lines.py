"""Objects of JSON as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.messages.json_lines import json_message
from broker_core.client.produce.outgoing_message import OutgoingMessage

SHARED = OutgoingMessage("t", b"", "tag", "", {"host": "web1"}, 3)


def message(**fields: Any) -> OutgoingMessage:
    return json_message(json.dumps(fields).encode(), SHARED)


def test_missing_fields_are_those_of_all_messages() -> None:
    assert message(body="zwölf") == SHARED._replace(body="zwölf".encode())
    own = message(body="", tags="own", delayLevel=5, properties={"host": "web2", "n": [1]})
    assert (own.tags, own.delay_level) == ("own", 5)
    assert own.properties == {"host": "web2", "n": "[1]"}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"body": "//4=", "bodyEncoding": "base64"}, b"\xff\xfe"),
        ({"value": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"body": 7}, b"7"),
        ({"body": None}, b"null"),
    ],
)
def test_bodies(fields: dict[str, Any], body: bytes) -> None:
    assert message(**fields).body == body


def test_what_rocketmq_sets_is_not_sent_again() -> None:
    system = {"UNIQ_KEY": "1", "WAIT": "true", "TIMER_DELIVER_MS": "5", "__SHARDINGKEY": "s"}
    found = message(body="", queue=3, offset=9, topic="other", properties={**system, "a": "b"})
    assert found.topic == "t"
    assert found.properties == {"host": "web1", "a": "b"}
    assert found.sharding_key == "s"
    assert message(body="", shardingKey="").sharding_key is None


def test_times() -> None:
    assert message(body="", deliverAt=17).deliver_at_ms == 17
    assert message(body="", delayMs=17).delay_ms == 17


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"body": "", "keys": 7}, "keys 7 is not a text"),
        ({"body": "", "properties": []}, "is not an object"),
        ({"body": "", "bodyEncoding": "hex"}, "'hex' is neither utf-8 nor base64"),
        ({"body": "", "delayMs": True}, "is not a whole number"),
    ],
)
def test_mistakes(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(CommandFailed, match=text):
        message(**fields)
