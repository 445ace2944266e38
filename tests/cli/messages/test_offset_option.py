"""Values of `-o` and the offsets they mean."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.cli.admin.offsets import parse_time
from broker_core.cli.messages.offset_option import (
    PositionKind,
    StartPosition,
    first_offset,
    parse_position,
)
from broker_core.client.pull.queue_offsets import EARLIEST_MS, LATEST_MS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", StartPosition(PositionKind.BEGINNING)),
        ("end", StartPosition(PositionKind.END)),
        ("earliest", StartPosition(PositionKind.BEGINNING)),
        ("Latest", StartPosition(PositionKind.END)),
        ("now", StartPosition(PositionKind.END)),
        ("2023-11-14T22:13:20Z", StartPosition(PositionKind.TIME, 1_700_000_000_000)),
        ("0", StartPosition(PositionKind.OFFSET, 0)),
        ("17", StartPosition(PositionKind.OFFSET, 17)),
        ("-5", StartPosition(PositionKind.FROM_END, 5)),
        ("@1700000000123", StartPosition(PositionKind.TIME, 1_700_000_000_123)),
        ("@2023-11-14T22:13:20Z", StartPosition(PositionKind.TIME, 1_700_000_000_000)),
        ("@2023-11-14T22:13:20.5+00:00", StartPosition(PositionKind.TIME, 1_700_000_000_500)),
        ("@2023-11-14 23:13:20+01:00", StartPosition(PositionKind.TIME, 1_700_000_000_000)),
    ],
)
def test_positions(text: str, expected: StartPosition) -> None:
    assert parse_position(text) == expected


@pytest.mark.parametrize(
    "text", ["earliest", "latest", "now", "beginning", "end", "@1700000000123", "@2023-11-14",
             "2023-11-14T22:13:20Z", "@2023-11-14T22:13:20Z"]
)  # fmt: skip
def test_offset_reset_takes_the_same_words(text: str) -> None:
    kind, number = parse_position(text)
    expected = {PositionKind.BEGINNING: EARLIEST_MS, PositionKind.END: LATEST_MS}.get(kind, number)
    assert parse_time(text) == expected


def test_a_time_without_zone_is_local() -> None:
    local = datetime.datetime.fromisoformat("2024-05-31T14:00:00").timestamp()
    assert parse_position("@2024-05-31T14:00:00").number == round(local * 1000)


@pytest.mark.parametrize("text", ["", "middle", "--5", "-", "5x", "@", "@noon", "1e3", "٣", "+5"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not earliest, latest|TIME is epoch"):
        parse_position(text)


class Ends:
    """A queue that holds offsets 10 to 20 (exclusive)."""

    async def min_offset(self, queue: Any) -> int:
        return 10

    async def max_offset(self, queue: Any) -> int:
        return 20

    async def offset_by_time(self, queue: Any, time_ms: int) -> int:
        return 10 + time_ms


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("beginning", 10),
        ("end", 20),
        ("@3", 13),
        ("15", 15),
        ("0", 10),
        ("99", 20),
        ("-1", 19),
        ("-10", 10),
        ("-99", 10),
        ("-0", 20),
    ],
)
def test_first_offset(run_async: Callable[..., Any], text: str, offset: int) -> None:
    assert run_async(first_offset(parse_position(text), Ends(), "queue")) == offset
