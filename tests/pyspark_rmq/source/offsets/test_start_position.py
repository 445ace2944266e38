"""Start positions in every form of the option."""

from __future__ import annotations

import pytest

from broker_core import MessageQueue, errors
from pyspark_rmq.source.offsets.start_position import (
    EARLIEST,
    LATEST,
    Anchor,
    Position,
    parse_positions,
    parse_times,
)

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)
OTHER = MessageQueue("u", "broker-b", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("committed", Position(Anchor.COMMITTED)),
        ("latest-100", Position(Anchor.LATEST, 100)),
        ("earliest+5", Position(Anchor.EARLIEST, 5)),
        ("-10m", Position(Anchor.AGO, 600_000)),
        ("-90 s", Position(Anchor.AGO, 90_000)),
        ("-250ms", Position(Anchor.AGO, 250)),
        ("-1d", Position(Anchor.AGO, 86_400_000)),
    ],
)
def test_one_word_for_all_queues(text: str, expected: Position) -> None:
    found = parse_positions("startingOffsets", text, EARLIEST)
    assert found.of(Q0) == found.of(OTHER) == expected


@pytest.mark.parametrize(
    "text", ["", "first", "latest+1", "earliest-1", "10m", "-10", "-10y", "5", "{", "[]", "{}"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidConfig, match="startingOffsets"):
        parse_positions("startingOffsets", text, EARLIEST)


def test_queues_by_name() -> None:
    text = '{"t":{"broker-a":{"0":23,"1":-1},"broker-b":-2},"u":{"1":7,"2":"latest-3"}}'
    found = parse_positions("startingOffsets", text, Position(Anchor.OFFSET, 99))
    assert found.of(Q0) == Position(Anchor.OFFSET, 23)
    assert found.of(Q1) == LATEST
    assert found.of(MessageQueue("t", "broker-b", 4)) == EARLIEST
    assert found.of(OTHER) == Position(Anchor.OFFSET, 7)
    assert found.of(MessageQueue("u", "broker-x", 2)) == Position(Anchor.LATEST, 3)
    assert found.of(MessageQueue("t", "broker-a", 2)) == Position(Anchor.OFFSET, 99)


def test_topics_by_name() -> None:
    found = parse_positions("startingOffsets", '{"t":"latest","u":5}', EARLIEST)
    assert found.of(Q0) == LATEST
    assert found.of(OTHER) == Position(Anchor.OFFSET, 5)


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"broker-a":{"0":-3}}}',
        '{"t":{"broker-a":{"x":1}}}',
        '{"t":{"broker-a":{"0":1.5}}}',
        '{"t":{"broker-a":{"0":null}}}',
        '{"t":{"broker-a":{"0":true}}}',
        '{"t":{"broker-a":{"0":1,"0":2}}}',
        '{"t":[1]}',
        '{"t":{"b":{"0":{"x":{"y":1}}}}}',
    ],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidConfig, match="startingOffsets"):
        parse_positions("startingOffsets", text, EARLIEST)


@pytest.mark.parametrize("text", ["earliest", "committed", '{"t":-2}', '{"t":"earliest"}'])
def test_an_end_is_not_the_beginning(text: str) -> None:
    with pytest.raises(errors.InvalidConfig, match="endingOffsets"):
        parse_positions("endingOffsets", text, LATEST, is_end=True)


def test_times() -> None:
    text = '{"t":{"broker-a":{"0":1000,"1":"2024-05-31T12:00:00Z"}},"u":5}'
    found = parse_times("startingOffsetsByTimestamp", text, EARLIEST, strict=True)
    assert found.of(Q0) == Position(Anchor.TIME, 1000)
    assert found.of(Q1) == Position(Anchor.TIME, 1_717_156_800_000)
    assert found.of(OTHER) == Position(Anchor.TIME, 5)
