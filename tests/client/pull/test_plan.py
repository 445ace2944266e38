"""The size of each request of a stream."""

from __future__ import annotations

from broker_core.client.pull.plan import CountWidth, OffsetSize, SizeWidth


def test_a_cap_of_the_broker_is_found_from_above_and_from_below() -> None:
    for first, cap in ((32, 8), (32, 200)):
        width = CountWidth(first, 1024)
        for _ in range(600):
            width.note(width.width, min(width.width, cap), 0)
        assert cap / 2 <= width.width <= 2 * cap


def test_one_short_answer_does_not_change_the_width() -> None:
    width = CountWidth(32, 1024)
    for covered in (32, 32, 1, 32, 32, 5, 7, 32):
        width.note(32, covered, 0)
    assert width.width == 32
    for covered in (4, 9, 6):
        width.note(32, covered, 0)
    assert width.width == 9


def test_the_rest_of_a_slot_does_not_change_the_width() -> None:
    width = CountWidth(32, 1024)
    for _ in range(100):
        width.note(5, 1, 0)
    assert width.width == 32


def test_the_width_stays_below_its_maximum() -> None:
    width = CountWidth(32, 64)
    for _ in range(1_000):
        width.note(width.width, width.width, 0)
    assert width.width == 64


def test_the_width_follows_the_size_of_messages() -> None:
    width = SizeWidth(1 << 20, 1 << 16)
    width.note(32, 32, 32 << 10)
    assert width.width == 1024
    width.note(1024, 2, 2 << 20)
    assert width.width == 1
    width.note(1, 1, 1)
    assert width.width == 1 << 16
    width.note(10, 10, 0)
    assert width.width == 1 << 16


def test_large_answers_are_expected_for_a_while() -> None:
    size = OffsetSize()
    assert size.expected == 0
    size.note(10, 10_000)
    size.note(10, 100)
    assert 800 < size.expected < 1_000
    for _ in range(100):
        size.note(10, 100)
    assert size.expected < 11
