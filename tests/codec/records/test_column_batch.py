"""Column batches of wrong types are refused before the encoder sees them."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.codec.records.column_batch import (
    ColumnBatch,
    check_batch,
    check_queues,
    encode_places,
)
from broker_core.errors import InvalidArgument
from tests.codec.codec_backends import column

GOOD = ColumnBatch(1, ((b"T", 0),), None, column(b"x"))


def test_accepted() -> None:
    check_batch(GOOD)
    check_batch(GOOD._replace(tags=column(b"t"), born_host=bytes(8)))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"count": True}, "count"),
        ({"flag": 1.0}, "flag"),
        ({"born_host": "host"}, "born_host"),
        ({"body": None}, "body"),
        ({"body": (b"x", b"")}, "body"),
        ({"tags": (b"x", b"", "4")}, "tags"),
        ({"queues": [(b"T", 0)]}, "queues"),
    ],
)
def test_refused(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        check_batch(GOOD._replace(**changes))


def test_another_object() -> None:
    with pytest.raises(InvalidArgument, match="not tuple"):
        check_batch(tuple(GOOD))


@pytest.mark.parametrize(
    "queue", ["T", (b"T",), ("T", 0), (b"T", -1), (b"T", 1 << 31), (b"T", True)]
)
def test_what_is_no_queue(queue: Any) -> None:
    with pytest.raises(InvalidArgument, match="queues must be"):
        check_queues((queue,))


def test_places() -> None:
    assert encode_places([(b"T", 1), (b"UV", 2)]) == (b"\0\0\0\x01\0\x01T" + b"\0\0\0\x02\0\x02UV")
