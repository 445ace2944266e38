"""A slave that is far behind: its reads wait for the disk on a thread, and its lag is counted."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole
from broker_core.replication.read_ahead import PIECE_SIZE, ReadAhead
from broker_core.storage.files.posix_file_system import PosixFile
from tests.replication.running_pair import (
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
