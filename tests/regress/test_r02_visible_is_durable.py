"""R02 (RocketMQ #8239): a consumer read a message that was not flushed and noted its offset.

After a power cut the next message took that offset and was never consumed.
"""

from __future__ import annotations

import pytest

from tests.crash.planted_bugs import visible_before_durable
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import (
    TOPIC,
    new_disk,
    numbered,
    numbers_in,
    open_store,
    reboots,
    small_config,
)


def _goes_on(after: SimulatedDisk, consumed_until: int) -> None:
    store = open_store(after, small_config())
    before = store.offsets(TOPIC, 0)[1]
    assert consumed_until <= before, "the consumer's offset is past the end of the queue"
    store.put_now(numbered(2))
    assert numbers_in(store, consumed_until)[-1] == 2
    assert 2 in numbers_in(store, before)


def _scenario() -> None:
    disk = new_disk()
    store = open_store(disk, small_config())
    consumed_until = 0
    cuts = 0

    def consumer_polls_and_power_fails(_: int) -> None:
        nonlocal consumed_until, cuts
        result = store.get(TOPIC, 0, consumed_until)
        if result.message_count:
            consumed_until = result.next_offset
        for after in reboots(disk, 16):
            cuts += 1
            _goes_on(after, consumed_until)

    disk.on_operation = consumer_polls_and_power_fails
    # The long-polling consumer is woken as soon as the queue says so.
    store.on_arrival(lambda *_: consumer_polls_and_power_fails(0))
    assert store.append(numbered(0)).ok
    assert store.append(numbered(1)).ok
    assert cuts > 50


def test_no_consumer_reads_ahead_of_the_disk() -> None:
    _scenario()


def test_the_scenario_finds_a_store_that_shows_too_early() -> None:
    with visible_before_durable(), pytest.raises(AssertionError, match="past the end"):
        _scenario()
