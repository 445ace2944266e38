"""A slave that is far behind: its reads wait for the disk on a thread, and its lag is counted."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole
from broker_core.replication.message_counts import MARKS_MAX, MessageCounts
from broker_core.replication.read_ahead import PIECE_SIZE, ReadAhead
from broker_core.storage.files.posix_file_system import PosixFile
from broker_core.store.replication.replica_log import ReplicaLog
from tests.replication.running_pair import (
    TIMEOUT_S,
    config_of,
    make_topic,
    name_server,
    on_loop,
    put,
    running,
    same_log,
    until,
)

FAR = 16 << 20
BIG_FILES = {"store": {"commit_log_file_size": 8 << 20}}


async def filled(master: Broker) -> None:
    """Twice as much as is taken to be in memory."""
    make_topic(master)
    while master.context.store.log_range[1] < 2 * FAR:
        put(master, 20, size=100_000)
        await asyncio.sleep(0)


@on_loop
async def test_old_bytes_are_not_read_on_the_loop(tmp_path: Path) -> None:
    reads: list[tuple[bool, int, int]] = []
    loop_thread, right = threading.get_ident(), PosixFile.read

    def noted(self: PosixFile, start: int, size: int) -> bytes:
        if "commitlog/" in self.path and size > 1 << 10:
            base = int(self.path.rpartition("/")[2])
            reads.append((threading.get_ident() == loop_thread, base + start, size))
        return right(self, start, size)

    async with name_server() as names:
        of_master = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **BIG_FILES)
        of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **BIG_FILES)
        async with running(of_master) as master:
            await filled(master)
            end = master.context.store.log_range[1]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(PosixFile, "read", noted)
                async with running(of_slave) as slave:
                    log = slave.context.store.replication.log
                    await until(lambda: log.safe_end == end)
            assert [size for on_loop, _, size in reads if not on_loop and size > 1 << 20]
            early = [read for read in reads if read[0] and read[1] < end - FAR - (1 << 20)]
            assert not early, "bytes that may be on the disk only were read on the loop"
            async with running(of_slave) as slave:
                await same_log(master, slave)


@on_loop
async def test_producers_do_not_wait_for_a_slow_disk(tmp_path: Path) -> None:
    may_read, asked = threading.Event(), threading.Event()
    right = ReplicaLog.read_later

    def slow(self: ReplicaLog, position: int, size: int) -> Any:
        found = right(self, position, size)
        if found is None:
            return None
        run, done = found

        def wait() -> bytes:
            asked.set()
            assert may_read.wait(TIMEOUT_S)
            return run()

        return wait, done

    async with name_server() as names:
        of_master = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **BIG_FILES)
        of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **BIG_FILES)
        async with running(of_master) as master:
            await filled(master)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ReplicaLog, "read_later", slow)
                async with running(of_slave) as slave:
                    await until(asked.is_set)
                    # The disk hangs; the loop does not.
                    before = master.context.store.log_range[1]
                    put(master, 50)
                    await until(lambda: master.context.store.dispatched_position > before)
                    (report,) = master.role.status()["slaves"]
                    assert report["lag_bytes"] > FAR
                    stored = master.context.store.replication.message_count
                    assert report["lag_messages"] == pytest.approx(stored, rel=0.05)
                    may_read.set()
                    await same_log(master, slave)
                    await until(lambda: master.role.status()["slaves"][0]["lag_messages"] == 0)


@on_loop
async def test_a_master_stops_while_a_thread_reads(tmp_path: Path) -> None:
    right, asked = ReplicaLog.read_later, threading.Event()
    may_read = threading.Event()

    def slow(self: ReplicaLog, position: int, size: int) -> Any:
        found = right(self, position, size)
        if found is None:
            return None
        run, done = found
        return (lambda: (asked.set(), may_read.wait(TIMEOUT_S), run())[2]), done

    async with name_server() as names:
        of_master = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **BIG_FILES)
        of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **BIG_FILES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaLog, "read_later", slow)
            async with running(of_slave) as slave:
                async with running(of_master) as master:
                    await filled(master)
                    await until(asked.is_set)
                    asyncio.get_running_loop().call_later(0.1, may_read.set)
                async with running(of_master) as master:
                    await same_log(master, slave)


# Pure


def test_pieces_follow_each_other() -> None:
    ahead = ReadAhead(100)
    end = 10 * PIECE_SIZE
    assert ahead.wanted(0, 100) is None
    assert ahead.take(0, 10) is None
    assert ahead.wanted(0, end) == (0, PIECE_SIZE)
    ahead.give(0, bytes(PIECE_SIZE))
    assert ahead.wanted(0, end) == (PIECE_SIZE, PIECE_SIZE)
    # A file ended: the piece is shorter than was wanted.
    ahead.give(PIECE_SIZE, b"x" * 50)
    assert ahead.wanted(0, end) is None
    assert len(ahead.take(0, 10) or b"") == 10
    assert len(ahead.take(PIECE_SIZE - 5, 10) or b"") == 5
    assert ahead.take(PIECE_SIZE, 100) == b"x" * 50
    assert ahead.wanted(PIECE_SIZE, end) == (PIECE_SIZE + 50, PIECE_SIZE)
    assert ahead.take(PIECE_SIZE + 50, 10) is None
    assert ahead.wanted(end - 100, end) is None
    assert ahead.wanted(end - 101, end) == (end - 101, 101)


def test_counts() -> None:
    counts = MessageCounts(1_000, 2_000, 10)
    assert [counts.behind(position) for position in (0, 1_000, 1_500, 1_999, 2_000, 9_999)] == [
        10, 10, 5, 1, 0, 0,
    ]  # fmt: skip
    counts.mark(2_500, 1)
    counts.mark(2_500, 1)
    counts.mark(2_600, 100)
    assert counts.behind(2_000) == 100
    assert counts.behind(2_500) == 99
    assert counts.behind(2_599) == 1
    assert counts.behind(1_500) == 105
    for number in range(3 * MARKS_MAX):
        counts.mark(3_000 + number, 101 + number)
    assert len(counts._positions) == len(counts._counts) <= MARKS_MAX
    assert counts.behind(2_600) == pytest.approx(3 * MARKS_MAX, rel=0.05)
    assert counts.behind(1_000) == 3 * MARKS_MAX + 110
    empty = MessageCounts(0, 0, 0)
    assert empty.behind(0) == 0
    empty.mark(500, 5)
    assert empty.behind(0) == 5
