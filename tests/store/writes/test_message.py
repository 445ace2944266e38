"""Messages are checked field by field, and become a batch of one row."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.errors import InvalidArgument
from broker_core.store.writes.message import Message, check_message, encode_topic, message_batch


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topic": b"T"}, "Message.topic must be str"),
        ({"body": "text"}, "Message.body must be bytes or bytearray or memoryview"),
        ({"queue_id": True}, "Message.queue_id must be int"),
        ({"queue_id": -1}, "Message.queue_id=-1 is out of range"),
        ({"reconsume_times": 1 << 31}, "Message.reconsume_times"),
        ({"tags": "a\x01"}, "Message.tags must not contain"),
        ({"properties": {"TAGS": "a"}}, "give TAGS as Message.tags"),
        ({"born_host": ("h",)}, "Message.born_host must be"),
    ],
)
def test_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_message(Message("T", b"body")._replace(**changes))


def test_accepted() -> None:
    check_message(Message("T", memoryview(b"x"), 1, "t", "k", {"a": "b"}, born_host=("::1", 1)))
    with pytest.raises(InvalidArgument, match="give a Message, not tuple"):
        check_message(("T", b"x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "waits"), [("true", True), ("FALSE", False), ("x", True)])
def test_the_property_wait(value: str, waits: bool) -> None:
    assert Message("T", b"", properties={"WAIT": value}).wants_wait is waits
    assert Message("T", b"").wants_wait


def test_a_batch_of_one_row() -> None:
    host = bytes(8)
    batch = message_batch(Message("T", b"body", tags="t"), (b"T", 3), host, 77, append_crc=True)
    assert batch.count == 1
    assert batch.queues == ((b"T", 3),)
    assert (batch.born_timestamp, batch.born_host, batch.store_host) == (77, host, host)
    assert batch.keys is None


def test_topics_that_cannot_be_encoded() -> None:
    with pytest.raises(InvalidArgument, match="topic cannot be encoded"):
        encode_topic("\ud800")
