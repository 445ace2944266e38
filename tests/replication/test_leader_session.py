"""Both sides of a replication connection, byte by byte, without sockets."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import LogsDiverged, ReplicationRefused
from broker_core.replication.follower_session import FollowerSession, FollowerSettings
from broker_core.replication.ha_frames import encode_header, encode_report
from broker_core.replication.handshake import MAGIC, Identity
from broker_core.replication.leader_session import LeaderSession, LeaderSettings, Phase
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory
from tests.replication.memory_log import MemoryLog

MASTER = Identity("C", "B", 0, "m")
SLAVE = Identity("C", "B", 1, "s")
EPOCHS = EpochHistory((Epoch(TERM, "a", 0),), TERM)
DATA = bytes(n % 251 for n in range(2500))


def leader(log: MemoryLog, history: EpochHistory = EPOCHS, **settings: Any) -> LeaderSession:
    """Admits every slave."""
    return LeaderSession(
        log, MASTER, history, LeaderSettings(**settings), b"M" * 16, 0.0,
        lambda identity, seen: None,
    )  # fmt: skip


def follower(
    log: MemoryLog,
    history: EpochHistory = EPOCHS,
    identity: Identity = SLAVE,
    **settings: Any,
) -> FollowerSession:
    """Learns nothing."""
    return FollowerSession(
        log, identity, history, FollowerSettings(**settings), b"S" * 16, 0.0, lambda epochs: None
    )  # fmt: skip


def converse(master: LeaderSession, slave: FollowerSession, size: int = 1 << 20) -> None:
    """Exchange everything, `size` bytes at a time."""
    to_master, to_slave = slave.opening(0.0), b""
    for _ in range(100_000):
        if to_master:
            part, to_master = to_master[:size], to_master[size:]
            try:
                master.receive(part, 0.0)
            except ReplicationRefused:
                slave.receive(memoryview(master.reply), 0.0)
                raise
        to_slave += master.next_bytes(0.0)
        if to_slave:
            part, to_slave = to_slave[:size], to_slave[size:]
            to_master += slave.receive(memoryview(part), 0.0)
        if not to_master and not to_slave:
            return
    raise AssertionError("they talk for ever")


def test_an_apache_slave_gets_nothing_before_it_speaks_and_then_the_last_file() -> None:
    session = leader(MemoryLog(DATA))
    assert session.next_bytes(100.0) == b""
    session.receive(encode_report(0)[:5], 0.0)
    assert session.next_bytes(100.0) == b""
    assert session.receive(encode_report(0)[5:], 0.0)
    # The last file starts at 2000.
    assert session.next_bytes(0.0) == encode_header(2000, 500) + DATA[2000:]
    assert session.next_bytes(1.0) == b""
    assert session.next_bytes(5.1) == encode_header(2500, 0)


def test_bodies_end_at_the_end_of_a_file_and_at_the_batch_size() -> None:
    session = leader(MemoryLog(DATA), classic_size=600)
    session.receive(encode_report(100), 0.0)
    sizes = []
    while data := session.next_bytes(0.0):
        sizes.append(len(data) - 12)
    assert sizes == [600, 300, 600, 400, 500]


@pytest.mark.parametrize("report", [-1, 2501, 1 << 62, -(1 << 63)])
def test_a_first_report_outside_the_log_is_refused(report: int) -> None:
    session = leader(MemoryLog(DATA))
    with pytest.raises(ReplicationRefused):
        session.receive(encode_report(report), 0.0)
    assert session.position == 0


@pytest.mark.parametrize("report", [99, 0, 2401, 1 << 62, -5])
def test_an_acknowledgement_of_what_was_not_sent_is_refused(report: int) -> None:
    session = leader(MemoryLog(DATA), classic_size=300)
    session.receive(encode_report(1800), 0.0)
    session.next_bytes(0.0)
    session.receive(encode_report(1900), 0.0)
    with pytest.raises(ReplicationRefused):
        session.receive(encode_report(report), 0.0)
    assert session.position == 1900


@given(st.binary(min_size=8, max_size=64))
def test_junk_never_moves_an_acknowledgement(junk: bytes) -> None:
    session = leader(MemoryLog(DATA))
    session.receive(encode_report(2500), 0.0)
    with contextlib.suppress(ReplicationRefused):
        session.receive(junk, 0.0)
    assert session.position == 2500


def test_a_silent_peer_is_left() -> None:
    session = leader(MemoryLog(DATA))
    session.tick(20.0)
    with pytest.raises(ReplicationRefused) as refused:
        session.tick(20.1)
    assert refused.value.kind == "silent"
    slave = follower(MemoryLog())
    with pytest.raises(ReplicationRefused):
        slave.tick(20.1)


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


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("copied", [0, 1, 999, 1000, 2500])
@pytest.mark.parametrize("key", [b"", b"secret"])
def test_our_own_nodes_copy_everything(size: int, copied: int, key: bytes) -> None:
    ours, theirs = MemoryLog(DATA), MemoryLog(DATA[:copied], store_id="s")
    master, slave = leader(ours, key=key, frame_size=300), follower(theirs, key=key)
    converse(master, slave, size)
    assert theirs.data == ours.data
    assert master.phase is Phase.STREAM
    assert master.position == 2500
    assert master.peer == SLAVE


def test_an_empty_slave_gets_the_log_from_its_minimum() -> None:
    ours, theirs = MemoryLog(DATA[1000:], start=1000), MemoryLog(store_id="s")
    converse(leader(ours), follower(theirs, EpochHistory()))
    assert (theirs.start, theirs.data) == (1000, ours.data)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("foreign", {"identity": Identity("Other", "B", 1, "s")}),
    ("foreign", {"identity": Identity("C", "Other", 1, "s")}),
    ("self", {"identity": Identity("C", "B", 1, "m")}),
    ("id", {"identity": Identity("C", "B", 0, "s")}),
    ("key", {"key": b"wrong"}),
    ("foreign", {"history": EpochHistory((Epoch(TERM, "z", 0),), TERM)}),
    ("stale master", {"history": EPOCHS._replace(seen=2 * TERM)}),
    ("diverged", {"data": DATA[:99] + b"?"}),
    ("behind", {"start_of_master": 1000}),
]


@pytest.mark.parametrize(("kind", "change"), REFUSED)
def test_refusals(kind: str, change: dict[str, Any]) -> None:
    change = dict(change)
    start = change.pop("start_of_master", 0)
    log = MemoryLog(change.pop("data", DATA[:100]), store_id="s")
    before = bytes(log.data)
    ours = MemoryLog(DATA[start:], start=start)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(ours), follower(log, **change))
    assert refused.value.kind == kind
    assert bytes(log.data) == before


def test_a_slave_that_goes_on_differently_is_told_where_to_cut() -> None:
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
        converse(leader(MemoryLog(DATA[:2000]), restarted, leans_on_slaves=True), follower(copy))
    assert refused.value.kind == "lost tail"
    assert not isinstance(refused.value, LogsDiverged)
    assert copy.end == len(DATA)
    # Also when it has gone on by itself, however far.
    longer = MemoryLog(DATA[:2000] + b"x" * 4000)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(longer, restarted, leans_on_slaves=True), follower(copy))
    assert refused.value.kind == "lost tail"


def test_a_slave_cuts_what_nobody_was_promised() -> None:
    restarted = EpochHistory((*EPOCHS.epochs, Epoch(TERM + 1, "b", 2000)), TERM + 1)
    promoted = EpochHistory((*EPOCHS.epochs, Epoch(2 * TERM, "b", 2000)), 2 * TERM)
    for history, leans in ((restarted, False), (promoted, True), (promoted, False)):
        master = leader(MemoryLog(DATA[:2000]), history, leans_on_slaves=leans)
        with pytest.raises(LogsDiverged) as diverged:
            converse(master, follower(MemoryLog(DATA)))
        assert diverged.value.agreed == 2000


def test_a_slave_reports_once_and_as_soon_as_its_log_says_that_all_is_safe() -> None:
    """Not when the log has done everything else that a sync entails."""
    said: list[bytes] = []

    class CallingLog(MemoryLog):
        def append(self, data: bytes | memoryview) -> None:
            super().append(data)
            said.append(session.report(0.0))

        def settle(self) -> None:
            said.append(session.report(0.0))

    log = CallingLog()
    session = follower(log, classic=True)
    session.opening(0.0)
    pieces = encode_header(0, 10) + DATA[:10] + encode_header(10, 20) + DATA[10:30]
    said.append(session.receive(memoryview(pieces), 0.0))
    # Two appends, then safe; nothing is left to say.
    assert said == [b"", b"", encode_report(30), b""]


def test_a_master_knows_whether_there_is_more_to_write() -> None:
    log = MemoryLog(DATA[:10])
    session = leader(log)
    assert (session.has_more, session.is_idle) == (False, False)
    session.receive(encode_report(10), 0.0)
    assert (session.has_more, session.is_idle) == (False, True)
    log.append(DATA[10:20])
    assert (session.has_more, session.is_idle) == (True, True)
    assert session.next_bytes(0.0) == encode_header(10, 10) + DATA[10:20]
    assert (session.has_more, session.is_idle) == (False, False)
    session.receive(encode_report(20), 0.0)
    assert session.is_idle
    assert session.next_bytes(0.0) == b""


def test_a_slave_ahead_of_its_master_is_never_fed() -> None:
    log = MemoryLog(DATA[:100], store_id="s")
    with pytest.raises(LogsDiverged) as diverged:
        converse(leader(MemoryLog(DATA[:50])), follower(log))
    assert diverged.value.agreed == 50


def test_files_of_another_size_are_refused() -> None:
    log = MemoryLog(store_id="s", file_size=500)
    with pytest.raises(ReplicationRefused) as refused:
        converse(leader(MemoryLog(DATA)), follower(log))
    assert "mappedFileSizeCommitLog" in str(refused.value)


def test_with_a_key_apache_slaves_are_refused() -> None:
    with pytest.raises(ReplicationRefused) as refused:
        leader(MemoryLog(DATA), key=b"k").receive(encode_report(0), 0.0)
    assert refused.value.kind == "key"


@given(st.binary(max_size=200))
def test_junk_behind_the_magic_is_refused_or_waited_for(junk: bytes) -> None:
    session = leader(MemoryLog(DATA))
    with contextlib.suppress(ReplicationRefused):
        session.receive(MAGIC + b"n" * 16 + junk, 0.0)
    assert session.phase is not Phase.STREAM
    assert session.sent == session.position == 0


def test_a_replayed_claim_is_worthless() -> None:
    """What a slave with the key said once opens no second connection."""
    said: list[bytes] = []

    @dataclasses.dataclass
    class Recorder:
        session: FollowerSession

        def opening(self, now: float) -> bytes:
            said.append(self.session.opening(now))
            return said[-1]

        def receive(self, data: memoryview, now: float) -> bytes:
            said.append(self.session.receive(data, now))
            return said[-1]

    log = MemoryLog(DATA[:100], store_id="s")
    recorder: Any = Recorder(follower(log, key=b"k"))
    converse(leader(MemoryLog(DATA), key=b"k"), recorder)
    again = LeaderSession(
        MemoryLog(DATA), MASTER, EPOCHS, LeaderSettings(key=b"k"), b"N" * 16, 0.0,
        lambda identity, seen: None,
    )  # fmt: skip
    with pytest.raises(ReplicationRefused) as refused:
        again.receive(b"".join(said), 0.0)
    assert refused.value.kind == "key"
