"""Ages of log files when the clock is set."""

from __future__ import annotations

import os
from random import Random

import pytest

from broker_core.storage.log.file_ages import STEP_MS
from broker_core.storage.log.retention import HOUR_MS
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all

SEEDS = 1_000 if os.environ.get("RMQ_CRASH_LONG") else 30


YEAR_MS = 365 * 24 * HOUR_MS


STEPS_MS = (-10 * YEAR_MS, -HOUR_MS, -1_000, 1_000, HOUR_MS, 10 * YEAR_MS)


RESERVED_MS = 72 * HOUR_MS


TOPIC = "T"


class _Run:
    """A store and the expected age of its messages by a clock that is never set."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk: SimulatedDisk = new_disk()
        self.clock = self.disk.clock
        self.store: MessageStore = open_small(self.disk)
        self.true_ms = self.clock.wall_ms()
        self.put_at: list[int] = []
        self.was_set = False
        self.low = 0

    def put(self) -> None:
        for _ in range(self.random.randrange(1, 8)):
            body = str(len(self.put_at)).encode().ljust(self.random.choice((10, 4_000)), b".")
            result = self.store.append(Message(TOPIC, body))
            assert result.ok and result.queue_offset == len(self.put_at), result
            self.put_at.append(self.true_ms)
        self.store.flush()

    def wait(self) -> None:
        ms = self.random.choice((1, 5_000, HOUR_MS, 20 * HOUR_MS, 80 * HOUR_MS))
        self.clock.advance(ms)
        self.true_ms += ms
        # As every store does all ten seconds.
        self.store.clean()

    def step(self) -> None:
        self.was_set = True
        self.clock.set_wall(self.clock.wall_ms() + self.random.choice(STEPS_MS))
        # It stays so until the next look: what is set back before cannot be noticed.
        self.store.clean()

    def stand_still(self) -> None:
        self.was_set = True
        wall_ms = self.clock.wall_ms()
        self.wait()
        self.clock.set_wall(wall_ms)
        self.store.clean()

    def correct(self) -> None:
        self.clock.set_wall(self.true_ms)

    def restart(self) -> None:
        # All that a new process can go by are the times of the files.
        if not self.was_set:
            self.store.close()
            self.store = open_small(self.disk)

    def clean(self) -> None:
        self.store.clean(manual=True)

    def check(self) -> None:
        low, high = self.store.offsets(TOPIC, 0)
        assert high == len(self.put_at) and low >= self.low, "offsets never go backwards"
        young = [at for at in self.put_at[:low] if self.true_ms - at < RESERVED_MS - STEP_MS]
        assert not young, f"{len(young)} messages went before their time"
        self.low = low
        times = [self.store.store_time(TOPIC, 0, offset) for offset in range(low, high)]
        assert None not in times and times == sorted(times), "store times never go back"
        expected = [str(number).encode() for number in range(low, high)]
        assert [body.rstrip(b".") for body in bodies(self.store, TOPIC)] == expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_order_and_retention_under_a_clock_that_jumps(seed: int) -> None:
    run = _Run(seed)
    run.put()
    actions = (
        run.put, run.put, run.put, run.wait, run.step, run.step, run.stand_still, run.correct,
        run.clean, run.clean, run.restart,
    )  # fmt: skip
    for _ in range(60):
        run.random.choice(actions)()
        run.check()
    # However wrong the times of the files are, they go once they have been here for long enough.
    run.put()
    run.clean()
    run.clock.advance(RESERVED_MS + STEP_MS)
    start = -1
    while run.store.log_range[0] > start:
        start = run.store.log_range[0]
        run.clean()
    assert run.store.log_range[1] - start <= 16 << 10, "only the last file is left"


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_alone_expires_nothing(step_ms: int) -> None:
    disk = new_disk()
    store = open_small(disk)
    put_all(store, TOPIC, numbered(12, 4_000))
    disk.clock.set_wall(disk.clock.wall_ms() + step_ms)
    put_all(store, TOPIC, numbered(12, 4_000, first=12))
    assert store.clean(manual=True) == 0
    disk.clock.advance(RESERVED_MS - STEP_MS)
    assert store.clean(manual=True) == 0
    disk.clock.advance(STEP_MS)
    assert store.clean(manual=True) > 0
