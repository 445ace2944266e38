"""The fast path of single messages stores and refuses exactly what the general path does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.errors import InvalidArgument
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.store.small_store import new_disk, open_small

GOOD = Message("T", b"body")
VALUES: dict[str, tuple[Any, ...]] = {
    "topic": (1, b"T", None, ["T"], "a/b", "\ud800"),
    "body": (b"", bytearray(b"ab"), memoryview(b"ab"), "text", None, bytes(70_000)),
    "queue_id": (True, 2.0, -1, 1 << 31, "0", None),
    "tags": ("A", "中", "\x01", "a\x02", "\ud800", b"A", None, 1),
    "keys": ("k1 k2", "\x02", "\ud800", b"k", None, 0),
    "properties": (
        {"a": "b"}, {"a": ""}, {}, {"TAGS": "A"}, {"KEYS": "k"}, {"a": 1}, {"a\x01": "b"},
        {"a": "\ud800"}, {"a": "b" * 40_000}, {"__CRC32#": "0123456789"}, None, [], [("a", "b")], 0,
    ),
    "flag": (-1, 7, 1 << 31, True, 1.0, None),
    "sys_flag": (1, 4, 8, 12, 16, -1, 1 << 40, True, None),
    "born_timestamp": (5, -5, 1 << 63, True, 1.5),
    "born_host": (("10.0.0.1", 5), ("::1", 5), ("host",), "host", 5),
    "reconsume_times": (3, -1, 1 << 31, True, None),
    "prepared_transaction_offset": (9, -9, 1 << 63, True, None),
}  # fmt: skip
CASES = [(field, value) for field, values in VALUES.items() for value in values]


class Renamed(Message):
    """Not quite a message."""


@pytest.fixture
def stores() -> Iterator[tuple[MessageStore, MessageStore]]:
    settings = {"message_size_max": 60_000, "commit_log_file_size": 1 << 20}
    with open_small(new_disk(), **settings) as one, open_small(new_disk(), **settings) as other:
        assert one.append(GOOD).ok
        assert other.append(GOOD).ok
        yield one, other


def outcome(store: MessageStore, message: Any) -> Any:
    try:
        return store.append(message)
    except InvalidArgument as error:
        return str(error)


def content(store: MessageStore) -> list[Any]:
    store.flush()
    return [store.get("T", 0, 0).messages(), store.stats()["put_statuses"], store.log_range]


@pytest.mark.parametrize(("field", "value"), CASES)
def test_invalid_messages(
    stores: tuple[MessageStore, MessageStore], field: str, value: object
) -> None:
    known, unknown = stores
    odd = GOOD._replace(**{field: value})
    for message in (odd, GOOD, odd, Renamed(*odd), tuple(odd)):
        unknown.writes._known.clear()
        assert outcome(known, message) == outcome(unknown, message)
    assert content(known) == content(unknown)


def test_several_invalid_fields(stores: tuple[MessageStore, MessageStore]) -> None:
    known, unknown = stores
    for field, value in CASES:
        message = Message("T", b"b", 0, "A", "k", {"a": "b"}, 1, 1, 2)._replace(**{field: value})
        unknown.writes._known.clear()
        assert outcome(known, message) == outcome(unknown, message)
    assert content(known) == content(unknown)
