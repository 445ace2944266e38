"""The slave's side of a replication connection, without sockets."""

from __future__ import annotations

import pytest

from broker_core.errors import LogsDiverged, ReplicationRefused
from broker_core.replication.ha_frames import encode_header, encode_report
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory
from tests.replication.memory_log import MemoryLog
from tests.replication.two_sessions import EPOCHS, converse, follower, leader

DATA = bytes(n % 251 for n in range(2500))


def test_a_classic_slave_reports_at_once_after_each_piece_and_every_five_seconds() -> None:
    log = MemoryLog(DATA[:100])
    slave = follower(log, classic=True)
    assert slave.opening(0.0) == encode_report(100)
    frame = encode_header(100, 50) + DATA[100:150]
    assert slave.receive(memoryview(frame), 1.0) == encode_report(150)
    assert slave.tick(5.0) == b""
    assert slave.tick(6.1) == encode_report(150)
    log.safe_limit = 150
    assert slave.receive(memoryview(encode_header(150, 1) + b"x"), 6.2) == b""
    log.safe_limit = 151
    assert slave.report(6.3) == encode_report(151)


def test_a_classic_slave_drops_a_link_that_does_not_fit() -> None:
    log = MemoryLog(DATA[:100])
    slave = follower(log, classic=True)
    slave.opening(0.0)
    with pytest.raises(ReplicationRefused):
        slave.receive(memoryview(encode_header(90, 10) + b"x" * 10), 0.0)
    assert bytes(log.data) == DATA[:100]


def test_an_empty_classic_slave_begins_where_the_master_says() -> None:
    log = MemoryLog()
    slave = follower(log, classic=True)
    slave.opening(0.0)
    slave.receive(memoryview(encode_header(2000, 0) + encode_header(2000, 3) + b"abc"), 0.0)
    assert (log.start, bytes(log.data)) == (2000, b"abc")


def test_the_master_names_where_a_slave_with_a_different_end_cuts() -> None:
    newer = EpochHistory((*EPOCHS.epochs, Epoch(2 * TERM, "b", 60)), 2 * TERM)
    log = MemoryLog(DATA[:100], store_id="s")
    with pytest.raises(LogsDiverged) as diverged:
        converse(leader(MemoryLog(DATA[:60] + b"new"), newer), follower(log))
    assert (diverged.value.agreed, diverged.value.end) == (60, 100)
    assert bytes(log.data) == DATA[:100]


def test_a_slave_keeps_what_a_master_lost_that_leans_on_it() -> None:
    """Power cut at a SYNC_MASTER with ASYNC_FLUSH: it comes back with less than it promised."""
    restarted = EpochHistory((*EPOCHS.epochs, Epoch(TERM + 1, "b", 2000)), TERM + 1)
    copy = MemoryLog(DATA)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(MemoryLog(DATA[:2000]), restarted, relies_on_slaves=True), follower(copy))
    assert refused.value.kind == "lost tail"
    assert not isinstance(refused.value, LogsDiverged)
    assert copy.end == len(DATA)
    # Also when it has gone on by itself, however far.
    longer = MemoryLog(DATA[:2000] + b"x" * 4000)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(longer, restarted, relies_on_slaves=True), follower(copy))
    assert refused.value.kind == "lost tail"


def test_a_slave_cuts_what_was_not_acknowledged() -> None:
    restarted = EpochHistory((*EPOCHS.epochs, Epoch(TERM + 1, "b", 2000)), TERM + 1)
    promoted = EpochHistory((*EPOCHS.epochs, Epoch(2 * TERM, "b", 2000)), 2 * TERM)
    for history, relies in ((restarted, False), (promoted, True), (promoted, False)):
        master = leader(MemoryLog(DATA[:2000]), history, relies_on_slaves=relies)
        with pytest.raises(LogsDiverged) as diverged:
            converse(master, follower(MemoryLog(DATA)))
        assert diverged.value.agreed == 2000


def test_a_slave_reports_once_and_as_soon_as_its_log_says_that_all_is_safe() -> None:
    """Not when the log has done everything else that a sync entails."""
    message: list[bytes] = []

    class CallingLog(MemoryLog):
        def append(self, data: bytes | memoryview) -> None:
            super().append(data)
            message.append(session.report(0.0))

        def settle(self) -> None:
            message.append(session.report(0.0))

    log = CallingLog()
    session = follower(log, classic=True)
    session.opening(0.0)
    pieces = encode_header(0, 10) + DATA[:10] + encode_header(10, 20) + DATA[10:30]
    message.append(session.receive(memoryview(pieces), 0.0))
    # Two appends, then safe; nothing is left to say.
    assert message == [b"", b"", encode_report(30), b""]


def test_files_of_another_size_are_refused() -> None:
    log = MemoryLog(store_id="s", file_size=500)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(MemoryLog(DATA)), follower(log))
    assert "mappedFileSizeCommitLog" in str(refused.value)
