"""Both sides of a replication connection, byte by byte, without sockets."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import LogsDiverged, ReplicationRefused
from broker_core.replication.follower_session import FollowerSession
from broker_core.replication.ha_frames import encode_header, encode_report
from broker_core.replication.handshake import MAGIC, Identity
from broker_core.replication.leader_session import LeaderSession, LeaderSettings, Phase
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory
from tests.replication.memory_log import MemoryLog
from tests.replication.two_sessions import EPOCHS, MASTER, SLAVE, converse, follower, leader

DATA = bytes(n % 251 for n in range(2500))


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


def test_a_handshake_that_trickles_in_is_left() -> None:
    session = leader(MemoryLog(DATA))
    for second, byte in enumerate(MAGIC[:3], 1):
        session.receive(bytes((byte,)), second * 10.0)
        if second < 3:
            session.tick(second * 10.0)
    with pytest.raises(ReplicationRefused) as refused:
        session.tick(30.0)
    assert refused.value.kind == "handshake"
    # A slave that copies may take any time.
    session = leader(MemoryLog(DATA))
    session.receive(encode_report(0), 10.0)
    session.tick(30.0)


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


def test_a_session_reports_whether_there_is_more_to_write() -> None:
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
