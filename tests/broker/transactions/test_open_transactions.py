"""The open half messages in memory."""

from __future__ import annotations

from broker_core.broker.transactions.open_transactions import (
    BEFORE_START,
    BLOCK_SIZE,
    OpenTransactions,
)


def test_the_window_against_a_set() -> None:
    window, model = OpenTransactions(1_000), set()
    window.extend(1_000 + 5 * BLOCK_SIZE + 7, 17)
    model |= set(range(1_000, window.high))
    for offset in [*range(1_000, 1_400, 3), *range(1_001, 1_300), 5, 10_000]:
        assert window.close(offset) == (offset in model)
        model.discard(offset)
        assert window.low == min(model)
        assert window.open_count == len(model)
    window.extend(window.high + 3, BEFORE_START)
    model |= set(range(window.high - 3, window.high))
    assert [o for number in window.blocks() for o in window.open_in(number)] == sorted(model)
    assert window.arrived_ms(window.high - 4) == 17
    assert window.arrived_ms(window.high - 1) == BEFORE_START
    assert window.close_below(1_500) == sum(offset < 1_500 for offset in model)
    assert window.low == 1_500
    for offset in sorted(model):
        window.close(offset)
    assert window.low == window.high and window.blocks() == []
    window.extend(window.high + 1, 1)
    assert window.low == window.high - 1


def test_a_million_open_halves_are_small() -> None:
    window = OpenTransactions(0)
    window.extend(1_000_000, 1)
    size = sum(
        len(block.flags) + 2 * len(block.checks) + 8 * len(block.arrived_ms)
        for block in window._blocks.values()
    )
    assert size < 12_000_000
    window.close_below(999_000)
    assert len(window.blocks()) < 10
